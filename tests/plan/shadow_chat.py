"""A toy model and what it answers to a request that is alone."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from parkway.plan.limits import Limits
from parkway.plan.pages import pages_for
from parkway.plan.step import PAGE_TOKENS
from parkway.report import SlotView
from parkway.request import Request

NOTHING = -1
"""The digest of a row that nobody wrote."""
RUNS = ("prefill", "decode", "replaying")
AWAY = ("preempting", "preempted", "restoring", "replaying")
VOCABULARY = 97


def absorb(digest: int, token_id: int) -> int:
    """The digest of all tokens up to here: no two beginnings that the machine draws share one."""
    return (digest * 1_000_003 + token_id + 1) % (2**61 - 1)


def next_token(digest: int, index: int) -> int:
    """Behind these tokens, as number `index` of prompt and answer: two draws of one chat are never the same."""
    return (digest + 31 * index) % VOCABULARY


@dataclass(frozen=True)
class Stretch:
    """What a chat has in its context at once: its tokens, up to their `end` and what steps in flight may sample behind
    a stop id before it is known, and the digests of these. It began with `given` of them, when `shed` others had been
    taken out. Without a reason a shift follows."""

    tokens: list[int]
    rows: list[int]
    end: int
    reason: str | None
    max_length: int
    given: int
    shed: int


def stretches(request: Request, limits: Limits) -> Iterator[Stretch]:
    """From shift to shift."""
    stretch = _stretch(request, limits, list(request.prompt), 0)
    yield stretch
    while stretch.reason is None:
        left = shifted(stretch.tokens, request)
        stretch = _stretch(request, limits, left, stretch.shed + len(stretch.tokens) - len(left))
        yield stretch


def _stretch(request: Request, limits: Limits, tokens: list[int], shed: int) -> Stretch:
    most, given, stop_ids = request.sampling.max_tokens, len(tokens), request.stop_ids
    limit = limits.n_ctx + shed + limits.shifts if most is None else len(request.prompt) + most
    end = max_length = min(limits.n_ctx, limit - shed)
    reason = "length" if end + shed == limit or not limits.shifts else None
    rows: list[int] = []
    digest = 0
    while len(rows) < min(max_length, end + limits.ahead):
        if len(rows) == len(tokens):
            tokens.append(next_token(digest, shed + len(rows)))
            if reason != "stop" and tokens[-1] in stop_ids and not request.sampling.ignore_eos:
                end, reason = len(tokens), "stop"
        digest = absorb(digest, tokens[len(rows)])
        rows.append(digest)
    return Stretch(tokens, rows, end, reason, max_length, given, shed)


def shifted(tokens: list[int], request: Request) -> list[int]:
    """The tokens of kept pages, and those that are left behind them."""
    pages = [tokens[at : at + PAGE_TOKENS] for at in range(0, len(tokens), PAGE_TOKENS)]
    keep = request.sampling.n_keep if request.sampling.n_keep >= 0 else len(request.prompt)
    kept = 0
    while kept * PAGE_TOKENS < keep and kept + 2 < len(pages):
        kept += 1
    behind = [token for page in pages[kept:] for token in page]
    wanted = request.sampling.n_discard or len(behind) // 2
    gone = kept + 1
    while gone + 1 < len(pages) and (gone + 1 - kept) * PAGE_TOKENS <= wanted:
        gone += 1
    return [token for page in pages[:kept] + pages[gone:] for token in page]


@dataclass(eq=False, repr=False)
class Chat:
    """A request with all that will come of it, and how far the planner has brought it.

    `tokens` are prompt and answer as they are in its context, see Stretch, of which there will be `later` ones.
    `length` counts the `known` tokens and those in flight, `flying` its chunks there. `cached` is what it found in the
    pool when it started. `view` is how the planner showed it last. `since` is when it began to wait for room, new or
    parked, `before` how many stood before it then, `clean` since when copies have landed soon. It lost the first `lost`
    rows while it was out, and what it does not find of them is `dropped`. `told`: it was told that it is out. `branch`:
    where it parts with others, as it saw when it came in.
    """

    request: Request
    tokens: list[int]
    end: int
    reason: str | None
    rows: list[int]
    max_length: int
    given: int
    shed: int
    known: int
    length: int
    view: SlotView
    later: Iterator[Stretch]
    computed: int = 0
    scored: set[int] = field(default_factory=set)
    flying: int = 0
    cached: int = 0
    ended: bool = False
    entered: float = 0.0
    since: float | None = None
    clean: float = 0.0
    before: int = 0
    lost: int = 0
    dropped: bool = False
    told: bool = False
    branch: int = 0

    @classmethod
    def alone(cls, request: Request, limits: Limits) -> "Chat":
        later, view = stretches(request, limits), SlotView(-1, request.id, "waiting")
        chat = cls(request, [], 0, None, [], 0, 0, 0, 0, 0, view, later)
        chat.begin_stretch()
        return chat

    def begin_stretch(self) -> None:
        """The first, or that behind a shift: of its tokens nothing is computed."""
        stretch = next(self.later)
        self.tokens, self.rows, self.end, self.reason = stretch.tokens, stretch.rows, stretch.end, stretch.reason
        self.max_length, self.shed = stretch.max_length, stretch.shed
        self.known = self.length = self.given = stretch.given
        self.computed = self.lost = 0

    @property
    def answer_tokens(self) -> int:
        return self.shed + self.length - len(self.request.prompt)

    @property
    def runs(self) -> bool:
        return self.view.state in RUNS

    @property
    def away(self) -> bool:
        """Its client waits for it: it is out, or computes again what it had."""
        return self.view.state in AWAY

    @property
    def out(self) -> bool:
        return self.away and not self.runs

    @property
    def may_return(self) -> bool:
        return self.view.state == "preempted" and not self.flying

    @property
    def decodes(self) -> bool:
        return self.view.state == "decode"

    @property
    def full(self) -> bool:
        """Nothing can follow, and nothing is left to compute."""
        return self.length == self.max_length and (self.answer_tokens > 0 or self.computed == self.length)

    @property
    def awaits_token(self) -> bool:
        """What is chosen next depends on a token that is in flight."""
        return self.length > self.known and self.request.sampling.needs_history

    def due(self, limits: Limits) -> bool:
        """Whether it is to be parked on purpose."""
        every = limits.knobs.park_every
        tired = every > 0 and self.answer_tokens >= (self.view.parks + 1) * every
        return limits.parks and tired and self.decodes and not self.full

    @property
    def owed(self) -> set[int]:
        """Positions that give a log-probability of the prompt, or a part of its embedding, and are not computed yet."""
        rows = len(self.request.prompt)
        if self.request.sampling.embed:
            return set(range(0 if self.request.sampling.embed == "mean" else rows - 1, rows)) - self.scored
        if self.request.sampling.prompt_logprobs is None:
            return set()
        return set(range(rows - 1)) - self.scored

    def reach(self, tokens: int) -> int:
        """Pages that it will have when it has so many tokens more; its last token needs none."""
        return pages_for(min(self.length + tokens, max(self.max_length - 1, self.given)))

    def place(self, resume: str) -> tuple[float, ...]:
        """In the line: who has the lower one comes in first; where priority makes two equal, who came first. Chats that
        were parked together share one."""
        assert self.since is not None, "it is not in the line"
        order = (-self.view.parks, self.since) if resume == "pass" else (self.since + 30 * self.request.priority,)
        return (*order, 0, 0, 0) if self.view.parks else (*order, 1, self.since, self.before)


def find(chats: Iterable[Chat], request_id: int) -> Chat | None:
    return next((chat for chat in chats if chat.request.id == request_id), None)
