"""Who may leave, come back and start: what the planner did in one plan, against what was there before."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from parkway.plan.limits import FOREVER, Limits, Pace
from parkway.plan.step import PAGE_TOKENS

from .shadow_chat import Chat

STARVED = 3


@dataclass
class Moves:
    """`running` in their order and `resident` (those that come back by a copy too) with their `pages`, before the plan.

    `parked` could have come back. Of `left`, those on purpose were `due`. `new` waits for room, which `started` had.
    `exempt` is who must not be parked. `decoders` decode in this step. `copying`: a copy is under way. `found`:
    pages that a chat would find, and `held` how many of those others hold. `next_place`: where others can begin
    next behind so many tokens of a chat.
    """

    limits: Limits
    pace: Pace
    running: list[Chat]
    resident: list[Chat]
    parked: list[Chat]
    new: list[Chat]
    pages: dict[Chat, tuple[int, ...]]
    due: list[Chat]
    exempt: Chat | None
    parks: dict[Chat, int] = field(default_factory=dict)
    left: list[Chat] = field(default_factory=list)
    returned: list[Chat] = field(default_factory=list)
    started: list[Chat] = field(default_factory=list)
    decoders: list[Chat] = field(default_factory=list)
    copying: bool = False
    found: Callable[[Chat], list[int]] = lambda chat: []
    next_place: Callable[[Chat, int], float] = lambda chat, tokens: tokens + PAGE_TOKENS
    held: Callable[[list[int]], int] = len

    def check(self, free: int, held: dict[Chat, tuple[int, ...]]) -> None:
        """`free` pages are left after it, `held` are the pages of those who are resident then."""
        assert set(self.due) <= set(self.left), "somebody was to be parked on purpose"
        assert not any(chat.full or chat is self.exempt for chat in self.left), "somebody was parked who must not be"
        self._check_leavers()
        if not self._last_resorts:
            self._check_order(held)
            self._check_waits(free, held)

    @property
    def _tokens(self) -> int:
        return max(self.pace.look_ahead, PAGE_TOKENS)

    @property
    def _last_resorts(self) -> list[Chat]:
        """Who lost its pages when others had come in already."""
        return [] if self.limits.knobs.look_ahead else [chat for chat in self.left if chat not in self.due]

    def _check_leavers(self) -> None:
        left = [chat for chat in self.left if chat not in self.due]
        assert self.limits.parks or not self.left, "somebody was parked although nobody may be"
        turns: list[Chat | None] = [None, *[chat for chat in left if self._may_go_in_turn(chat)]]
        faults = [self._fault([chat for chat in left if chat is not turn]) for turn in turns]
        assert None in faults, faults[0]

    def _may_go_in_turn(self, chat: Chat) -> bool:
        limits, now = self.limits, self.pace.now
        waiting = self.parked + self.new + self.started
        waited = any(now - other.since >= limits.quantum for other in waiting if other.since is not None)
        return limits.quantum < FOREVER and waited and now - chat.entered >= max(limits.quantum, 4 * self.pace.switch)

    def _fault(self, left: list[Chat]) -> str | None:
        """What is wrong with these chats making room for the others."""
        if not left:
            return None
        if self.limits.knobs.look_ahead:
            running, resident, tokens = self.running, self.resident, self.pace.look_ahead
        else:
            new = [chat for chat in (*self.returned, *self.started) if chat not in self.running]
            running, resident, tokens = self.running + new, self.resident + new, 0
            if self.copying:
                return "somebody dropped its pages although others were on their way"
        running = [chat for chat in running if chat not in self.due]
        resident = [chat for chat in resident if chat not in self.due]
        if not any(self._short(resident, left, chat, tokens) for chat in left):
            return "somebody was parked and need not have been"
        return self._wrong_victim(running, left)

    def _short(self, resident: list[Chat], left: list[Chat], last: Chat, tokens: int) -> bool:
        stay = [chat for chat in resident if chat not in left or chat is last]
        return promised(stay, self.pages, tokens) > self.limits.pages

    def _wrong_victim(self, running: list[Chat], left: list[Chat]) -> str | None:
        lead = max(running, key=lambda chat: chat.length)
        candidates = [chat for chat in running if chat is not self.exempt and not chat.full]
        if lead in left and not (self.exempt in running and set(candidates) <= set(left)):
            return "the leader was parked"
        stayed = [chat for chat in candidates if chat is not lead and chat not in left]
        if not self.limits.knobs.look_ahead:  # it frees pages at once, of which these had some
            stayed = [chat for chat in stayed if self.pages.get(chat)]
        if any(
            self._victim_key(chat) > self._victim_key(other) for chat in left for other in stayed if chat is not lead
        ):
            return "another was to be parked"
        return None

    def _victim_key(self, chat: Chat) -> tuple[float, ...]:
        starved = self.parks[chat] >= STARVED
        keys = {
            "smallest": chat.length,
            "largest": -chat.length,
            "youngest": -chat.request.id,
            "oldest": chat.request.id,
        }
        fresh = self.pace.now - chat.entered < 4 * self.pace.switch
        return starved, keys.get(self.limits.knobs.victim, fresh)

    def _check_order(self, held: dict[Chat, tuple[int, ...]]) -> None:
        """Nobody passes who could have come in, nor who could not yet, unless its pages are kept."""
        passing = self.limits.resume == "pass"
        for chat in self.started + ([] if passing else self.returned):
            passed = [other for other in self._line() if self._place(other) < self._place(chat)]
            could = [other for other in passed if self._could(other) and not (passing and other.out)]
            assert not could, "somebody passed who had no room"
            if passed:
                behind = self._kept(passed)
                fits = promised(held, held, self._tokens) + behind <= self.limits.pages
                assert fits, "somebody passed without room behind it"
        tokens = self._tokens if len(held) > 1 else 0
        fits = not self.started or promised(held, held, tokens) <= self.limits.pages
        assert fits, "somebody started without room beside the others"

    def _check_waits(self, free: int, held: dict[Chat, tuple[int, ...]]) -> None:
        waiting = [chat for chat in self._line() if self._could(chat)]
        if self.limits.resume == "pass":
            parked = [chat for chat in waiting if chat.out]
            assert all(self._needs(chat, held) > free for chat in parked), "somebody waits in vain to come back"
            waiting = [chat for chat in waiting if chat not in parked]
        head = min(map(self._place, waiting), default=())
        heads = [chat for chat in waiting if self._place(chat) == head]  # of those who left together, one is the first
        before = [chat for chat in self._line() if self._place(chat) <= head and chat not in heads]
        behind = max([chat.reach(PAGE_TOKENS) for chat in before], default=0)
        needs = [self._needs(chat, held, behind) for chat in heads]
        unsure = any(not chat.out for chat in before)  # it may have been ready, and the head, and without room
        assert not heads or unsure or max(needs) > free, "the head waits in vain"

    def _line(self) -> list[Chat]:
        """Who waits for room after the plan."""
        return [chat for chat in self.parks if chat.out and chat.view.state != "restoring"] + self.new

    def _place(self, chat: Chat) -> tuple[float, ...]:
        return chat.place(self.limits.resume)

    def _could(self, chat: Chat) -> bool:
        """Whether nothing but room was missing, for certain."""
        return chat.may_return if chat.out else not self._sibling_runs(chat)

    def _kept(self, passed: list[Chat]) -> int:
        """Pages that are kept at least for the first of these; several if they left together."""
        first = min(map(self._place, passed))
        return min([chat.reach(PAGE_TOKENS) for chat in passed if self._place(chat) == first])

    def _needs(self, chat: Chat, held: dict[Chat, tuple[int, ...]], behind: int = 0) -> int:
        """Pages for a chat that comes in."""
        tokens = self._tokens if held or behind else 0
        return (
            chat.reach(tokens)
            - self.held(self.found(chat))
            + behind
            + sum([max(0, each.reach(tokens) - len(held[each])) for each in held])
        )

    def _sibling_runs(self, chat: Chat) -> bool:
        """Whether somebody may be computing the page that it misses first, or up to where it could begin."""
        found = PAGE_TOKENS * len(self.found(chat))
        others = [other for other in self.parks if other.runs]
        return any(self._rows_up_to(chat, other, end) for other in others for end in self._places(other, found))

    def _places(self, other: Chat, found: int) -> list[int]:
        """Ends of pages of its prompt behind what was found, at which it computes for others."""
        ends = range(found + PAGE_TOKENS, other.given + 1, PAGE_TOKENS)
        return [end for end in ends if end == self.next_place(other, end - PAGE_TOKENS)]

    def _rows_up_to(self, chat: Chat, other: Chat, end: int) -> bool:
        return end < chat.length and chat.rows[end - 1] == other.rows[end - 1]


def promised(
    chats: Sequence[Chat] | dict[Chat, tuple[int, ...]], pages: dict[Chat, tuple[int, ...]], tokens: int
) -> int:
    """Pages that they hold and those that they will need until each has so many tokens more; a page counts once."""
    held = {page for chat in chats for page in pages.get(chat, ())}
    return len(held) + sum([max(0, chat.reach(tokens) - len(pages.get(chat, ()))) for chat in chats])
