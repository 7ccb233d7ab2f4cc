"""One chat in its slot: its tokens, how far they are computed, its pages and its state. Knows no pool and no policy."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from parkway.plan.prefix import chain
from parkway.plan.step import PAGE_TOKENS, PENDING, Chunk
from parkway.report import SlotView
from parkway.request import Request


class State(Enum):
    PREFILL = "prefill"
    DECODE = "decode"
    PREEMPTING = "preempting"  # its pages are being copied to the host; computes nothing
    PREEMPTED = "preempted"  # no page on the device; on the host, or nowhere
    RESTORING = "restoring"  # its pages are being copied back
    REPLAYING = "replaying"  # computes again what it had, without a token for the client
    FINISHED = "finished"
    CANCELLED = "cancelled"


Why = Literal["never", "no room", "no page is left", "its turn is over", "a test knob"]
"""A chat was parked: the next steps would not have fitted, or this one did not, another waited, or it was asked for."""

_ENDS = frozenset({State.FINISHED, State.CANCELLED})

MOVES: dict[State, frozenset[State]] = {
    State.PREFILL: _ENDS | {State.DECODE, State.PREEMPTING, State.PREEMPTED},
    State.DECODE: _ENDS | {State.PREEMPTING, State.PREEMPTED, State.PREFILL},
    State.PREEMPTING: _ENDS | {State.PREEMPTED},
    State.PREEMPTED: _ENDS | {State.PREFILL, State.DECODE, State.RESTORING, State.REPLAYING},
    State.RESTORING: _ENDS | {State.PREFILL, State.DECODE, State.REPLAYING},
    State.REPLAYING: _ENDS | {State.PREFILL, State.DECODE, State.PREEMPTING, State.PREEMPTED},
    State.FINISHED: frozenset(),
    State.CANCELLED: frozenset(),
}

_NOTHING = range(0)
ENDLESS = 2**31 - 1
"""Tokens of a chat without another limit: random numbers are drawn by a count of 32 bits."""


@dataclass(slots=True, eq=False)
class Slot:
    """A chat from its start to its end; `index` is its own for that long.

    `tokens` is prompt + answer as far as it is known, but for the `shed` ones that context shifts have taken out; it
    began with `given` of them, the prompt or what a shift has left. `length` counts those that steps in flight sample
    as well; it may become `max_length`, of which `most_rows` are computed, and `limit` with the shed ones. The KV of
    the first `computed` is in `pages`, or will be when the step planned last has run; while the chat is parked, in the
    host's pages `host`, or nowhere. The first `replayed` were computed before they were dropped. The first `scored`
    rows of the prompt owe nothing (any more), neither a log-probability nor a part of an embedding, nor do those from
    `owing` on. The first `sealed` pages are named, the first `saved` need not be saved ahead. `flying` counts its
    chunks in flight.

    `since` is when it began to wait for room the last time, new or parked. `stay` counts how often it has come into the
    pool, the last time at `entered`, with `entered_at` tokens computed; `cached` is how many tokens of the prompt it
    found there the first time. `parks`, `recomputes` and `parked_seconds` are its record; `why` it was parked last;
    `announced`: its client knows that it is out. `held`: it does not get its next token before it is released;
    `needs_history`: nor before all tokens are known. `state_from`: the checkpoint that its slot's state must be copied
    from before it computes; `branch`: where it leaves one because others went on with other tokens there, or 0.
    """

    index: int
    request: Request
    tokens: list[int]
    length: int
    limit: int
    given: int
    max_length: int
    most_rows: int
    scored: int
    owing: int
    needs_history: bool
    state: State = State.PREFILL
    shed: int = 0
    computed: int = 0
    pages: tuple[int, ...] = ()
    host: tuple[int, ...] = ()
    sealed: int = 0
    saved: int = 0
    stay: int = 0
    cached: int = 0
    flying: int = 0
    replayed: int = 0
    entered: float = 0.0
    entered_at: int = 0
    parks: int = 0
    recomputes: int = 0
    since: float = 0.0
    why: Why = "never"
    parked_seconds: float = 0.0
    announced: bool = False
    held: bool = False
    state_from: int | None = None
    branch: int = 0
    names: list[bytes] = field(default_factory=list)

    @classmethod
    def waiting(cls, request: Request, n_ctx: int, *, shifts: bool = False) -> "Slot":
        """A chat that has no slot and has computed nothing yet; it may have `n_ctx` tokens at once, prompt and answer,
        and more one after the other if it `shifts`."""
        prompt, sampling = request.prompt, request.sampling
        limit = ENDLESS if shifts else n_ctx
        if sampling.max_tokens is not None:
            limit = min(limit, len(prompt) + sampling.max_tokens)
        max_length = min(n_ctx, limit)
        owing = len(prompt) if sampling.embed else len(prompt) - 1
        scored = 0 if sampling.prompt_logprobs is not None or sampling.embed == "mean" else len(prompt) - 1
        most_rows = max(max_length - 1, len(prompt))
        held, needs_history = sampling.grammar is not None, sampling.needs_history
        lengths = len(prompt), limit, len(prompt), max_length, most_rows
        return cls(-1, request, list(prompt), *lengths, scored, owing, needs_history, held=held)

    @property
    def answer_tokens(self) -> int:
        return self.shed + self.length - len(self.request.prompt)

    @property
    def full(self) -> bool:
        """Whether nothing can follow, whatever the tokens in flight turn out to be, and no token is left to compute."""
        return self.length == self.max_length and (self.answer_tokens > 0 or self.computed == self.length)

    @property
    def ended(self) -> bool:
        return self.state in _ENDS

    @property
    def returns_to(self) -> State:
        """The state of the chat when it computes on from where it is."""
        if self.computed < self.replayed:
            return State.REPLAYING
        return State.DECODE if self.answer_tokens and self.computed >= self.length - 1 else State.PREFILL

    @property
    def finish_reason(self) -> str | None:
        """Why nothing follows the tokens that are known; None if something does."""
        request, known = self.request, self.shed + len(self.tokens)
        if self.tokens[-1] in request.stop_ids and known > len(request.prompt) and not request.sampling.ignore_eos:
            return "stop"
        return "length" if known == self.limit else None

    @property
    def outgrown(self) -> bool:
        """Whether something follows for which there is no room in the context. All tokens are known then."""
        return len(self.tokens) == self.max_length and self.shed + self.max_length < self.limit

    @property
    def may_share(self) -> bool:
        """Whether pages that others have computed do: not while rows of the prompt are owed that those would spare."""
        return self.request.sampling.cache_prompt and self.scored >= len(self.request.prompt) - 1

    @property
    def view(self) -> SlotView:
        return SlotView(
            id=self.index,
            request_id=self.request.id,
            state=self.state.value,
            prompt_tokens=len(self.request.prompt),
            tokens=self.shed + len(self.tokens),
            computed=self.computed,
            pages=len(self.pages),
            parks=self.parks,
            recomputes=self.recomputes,
            cached=self.cached,
        )

    def name(self, page: int) -> bytes:
        """The name of the chat's page of that number, whose tokens are known."""
        names = self.names
        while len(names) <= page:
            start = len(names) * PAGE_TOKENS
            names.append(chain(names[-1] if names else b"", self.tokens[start : start + PAGE_TOKENS]))
        return names[page]

    def before(self, page: int) -> bytes:
        """The name of the page before that one; b"" if it is the first."""
        return self.name(page - 1) if page else b""

    def enter(self, pages: tuple[int, ...], now: float) -> None:
        """Comes into the pool to compute what is behind these pages, which hold its first tokens."""
        self.pages, self.sealed, self.computed = pages, len(pages), len(pages) * PAGE_TOKENS
        if self.computed >= self.replayed:
            self.replayed = 0  # all that it had lost was found
        if not self.stay:
            self.cached = self.computed
        self.begin_stay(now)

    def begin_stay(self, now: float) -> None:
        self.stay += 1
        self.saved = 0
        self.entered, self.entered_at = now, self.computed

    def shift(self, gone: range) -> None:
        """Takes out the tokens at these positions, whole pages. `begin_again` follows."""
        assert not self.flying, f"slot {self.index}: shifted while a token is in flight"
        n_ctx = len(self.tokens)
        del self.tokens[gone.start : gone.stop], self.names[gone.start // PAGE_TOKENS :]
        self.shed += len(gone)
        self.length = self.given = len(self.tokens)
        self.max_length = min(n_ctx, self.limit - self.shed)
        self.most_rows = self.max_length - 1

    def begin_again(self, pages: tuple[int, ...]) -> None:
        """Computes what is behind these pages, in the same stay."""
        stayed = self.computed - self.entered_at
        self.pages, self.sealed, self.saved, self.computed = pages, len(pages), 0, len(pages) * PAGE_TOKENS
        self.entered_at = self.computed - stayed
        if self.returns_to is not self.state:
            self.move(self.returns_to)

    def drop(self) -> None:
        """What it has computed is gone; its tokens stay."""
        self.recomputes += self.computed > 0 and not self.replayed  # it may still be at it
        self.replayed = max(self.replayed, self.computed)
        self.computed = self.sealed = 0

    def move(self, state: State) -> None:
        assert state in MOVES[self.state], f"slot {self.index}: {self.state} can't become {state}"
        self.state = state

    @property
    def awaits_token(self) -> bool:
        """Whether it can't get its next token yet: what is chosen depends on its last one, on the host."""
        return self.held or (self.needs_history and self.length > len(self.tokens))

    def samples(self, end: int) -> bool:
        """Whether a chunk up to position `end` chooses the next token."""
        return end == self.length < self.max_length

    def scoring(self, end: int) -> range:
        """Positions of a chunk up to `end` that owe the next prompt token's log-probability, or a hidden state."""
        if self.scored >= self.owing:
            return _NOTHING
        return range(max(self.computed, self.scored), min(end, self.owing))

    def advance(self, end: int, state_to: int | None = None) -> Chunk:
        """The chunk up to position `end`, whose pages the chat holds; from here on it counts as computed."""
        start, owed, samples = self.computed, self.scoring(end), self.samples(end)
        rows = tuple(position - start for position in owed) if owed else ()
        tokens = tuple(self.tokens[start:end])
        if end > len(self.tokens):
            tokens += (PENDING,)
        states = self.state_from, state_to
        cached, shed = self.cached, self.shed
        chunk = Chunk(self.index, self.request, start, tokens, self.pages, samples, rows, cached, *states, shed)
        self.computed = end
        self.flying += 1
        if owed:
            self.scored = owed.stop
        if samples:
            self.length += 1
            self.held = self.request.sampling.grammar is not None
            if self.state is not State.DECODE:
                self.move(State.DECODE)
        elif self.state is State.REPLAYING and end >= self.replayed:
            self.move(self.returns_to)
        return chunk
