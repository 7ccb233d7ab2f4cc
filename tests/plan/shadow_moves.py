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

    `parked` could have come back. Of `left`, those on purpose were `due`. `queue` is who had not started. `exempt` is
    who must not be parked. `decoders` decode in this step.
    `copying`: a copy is under way. `found`: pages that a chat would
    find, and `held` how many of those others hold.
    """

    limits: Limits
    pace: Pace
    running: list[Chat]
    resident: list[Chat]
    parked: list[Chat]
    queue: list[Chat]
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
    held: Callable[[list[int]], int] = len

    def check(self, free: int, held: dict[Chat, tuple[int, ...]], slots_left: int) -> None:
        """`free` pages are left after it, `held` are the pages of those who are resident then."""
        assert set(self.due) <= set(self.left), "somebody was to be parked on purpose"
        assert not any(chat.full or chat is self.exempt for chat in self.left), "somebody was parked who must not be"
        self._check_leavers()
        self._check_order()
        self._check_start(held)
        self._check_waits(free, held, slots_left)

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
        waited = any(now - other.parked >= limits.quantum for other in self.parked)
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

    def _check_order(self) -> None:
        if self.limits.resume == "head":
            stayed = [chat for chat in self._waiting() if chat.may_return]
            keys = [self._return_key(chat) for chat in self.returned]
            assert all(max(keys, default=(0, 0)) <= self._return_key(chat) for chat in stayed if keys), (
                "somebody passed"
            )
        assert self.started == self.queue[: len(self.started)], "somebody passed the queue"

    def _waiting(self) -> list[Chat]:
        """Who is out after the plan and could have come back before others started."""
        chats = dict.fromkeys([*self.parked, *self.left])
        return [chat for chat in chats if chat.out and chat not in self._last_resorts]

    def _return_key(self, chat: Chat) -> tuple[float, float]:
        return chat.return_key(self.limits.resume, self.pace.now)

    def _check_start(self, held: dict[Chat, tuple[int, ...]]) -> None:
        if self.started and not self._last_resorts:
            behind = min(self._behind())
            assert promised(held, held, self._tokens if behind or len(held) > 1 else 0) + behind <= self.limits.pages, (
                "somebody started without room behind the others"
            )

    def _behind(self) -> list[int]:
        """Pages that are kept for the first of those who are out; several if they left together."""
        waiting = [chat for chat in self.parks if chat.out and chat.view.state != "restoring"]
        first = min(map(self._return_key, waiting), default=None)
        return [chat.reach(PAGE_TOKENS) for chat in waiting if self._return_key(chat) == first] or [0]

    def _check_waits(self, free: int, held: dict[Chat, tuple[int, ...]], slots_left: int) -> None:
        if self._last_resorts:
            return
        waiting = [chat for chat in self._waiting() if chat.may_return]
        head = min(map(self._return_key, waiting), default=None)
        if self.limits.resume == "head":  # of those who left together, one is the first
            heads = [chat for chat in waiting if self._return_key(chat) == head]
            assert not heads or any(self._needs(chat, held) > free for chat in heads), "the head waits in vain"
        else:
            assert all(self._needs(chat, held) > free for chat in waiting), "somebody waits in vain to come back"
        first = self.queue[len(self.started) :][:1]
        if first and slots_left and not self._sibling_runs(first[0]):
            assert self._needs(first[0], held, max(self._behind())) > free, "somebody waits in vain to start"

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
        """Whether somebody may be computing the page that it misses first."""
        end = PAGE_TOKENS * (len(self.found(chat)) + 1)
        others = [other for other in self.parks if other.runs and end <= len(other.request.prompt)]
        return end < chat.length and any(chat.rows[end - 1] == other.rows[end - 1] for other in others)


def promised(
    chats: Sequence[Chat] | dict[Chat, tuple[int, ...]], pages: dict[Chat, tuple[int, ...]], tokens: int
) -> int:
    """Pages that they hold and those that they will need until each has so many tokens more; a page counts once."""
    held = {page for chat in chats for page in pages.get(chat, ())}
    return len(held) + sum([max(0, chat.reach(tokens) - len(pages.get(chat, ()))) for chat in chats])
