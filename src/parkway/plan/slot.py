"""One chat in its slot: its tokens, how far they are computed, its pages and its state. Knows no pool and no policy."""

from dataclasses import dataclass, field
from enum import Enum

from parkway.plan.prefix import chain
from parkway.plan.step import PAGE_TOKENS, PENDING, Chunk
from parkway.request import Request


class State(Enum):
    PREFILL = "prefill"
    DECODE = "decode"
    PREEMPTED = "preempted"  # pages given back, tokens kept; computes nothing
    REPLAYING = "replaying"  # computes again what it had, without a token for the client
    FINISHED = "finished"
    CANCELLED = "cancelled"


MOVES: dict[State, frozenset[State]] = {
    State.PREFILL: frozenset({State.DECODE, State.PREEMPTED, State.FINISHED, State.CANCELLED}),
    State.DECODE: frozenset({State.PREEMPTED, State.FINISHED, State.CANCELLED}),
    State.PREEMPTED: frozenset({State.REPLAYING, State.FINISHED, State.CANCELLED}),
    State.REPLAYING: frozenset({State.DECODE, State.PREEMPTED, State.FINISHED, State.CANCELLED}),
    State.FINISHED: frozenset(),
    State.CANCELLED: frozenset(),
}

_NOTHING = range(0)


@dataclass(slots=True, eq=False)
class Slot:
    """A chat from its start to its end; `index` is its own for that long.

    `tokens` is prompt + answer as far as it is known. `length` counts those that steps in flight sample as well. The KV
    of the first `computed` is in `pages`, or will be once the step that was planned last has run. The first `scored`
    rows of the prompt owe no log-probability (any more). The first `sealed` pages are named. `stay` counts how often
    the chat has come into the pool; `cached` is how many tokens of the prompt it found there the first time.
    """

    index: int
    request: Request
    tokens: list[int]
    length: int
    max_length: int
    scored: int
    state: State = State.PREFILL
    computed: int = 0
    pages: tuple[int, ...] = ()
    sealed: int = 0
    stay: int = 0
    cached: int = 0
    names: list[bytes] = field(default_factory=list)

    @classmethod
    def waiting(cls, request: Request, n_ctx: int) -> "Slot":
        """A chat that has no slot and has computed nothing yet; it may reach `n_ctx` tokens, prompt and answer."""
        prompt, sampling = request.prompt, request.sampling
        max_length = n_ctx if sampling.max_tokens is None else min(n_ctx, len(prompt) + sampling.max_tokens)
        scored = len(prompt) - 1 if sampling.prompt_logprobs is None else 0
        return cls(-1, request, list(prompt), len(prompt), max_length, scored)

    @property
    def pending(self) -> int:
        """Tokens that are not known yet: chunks in flight sample them."""
        return self.length - len(self.tokens)

    @property
    def answer_tokens(self) -> int:
        return self.length - len(self.request.prompt)

    @property
    def full(self) -> bool:
        """Whether nothing can follow, whatever the pending tokens turn out to be."""
        return self.length == self.max_length

    @property
    def ended(self) -> bool:
        return self.state is State.FINISHED or self.state is State.CANCELLED

    @property
    def finish_reason(self) -> str | None:
        """Why nothing follows the tokens that are known; None if something does."""
        tokens, request = self.tokens, self.request
        if tokens[-1] in request.stop_ids and len(tokens) > len(request.prompt) and not request.sampling.ignore_eos:
            return "stop"
        return "length" if len(tokens) == self.max_length else None

    @property
    def may_share(self) -> bool:
        """Whether pages that others have computed do: not while log-probabilities of the prompt are owed."""
        return self.request.sampling.cache_prompt and self.scored >= len(self.request.prompt) - 1

    def name(self, page: int) -> bytes:
        """The name of the chat's page of that number, whose tokens are known."""
        names = self.names
        while len(names) <= page:
            start = len(names) * PAGE_TOKENS
            names.append(chain(names[-1] if names else b"", self.tokens[start : start + PAGE_TOKENS]))
        return names[page]

    def enter(self, pages: tuple[int, ...]) -> None:
        """Comes into the pool, where these pages hold its first tokens."""
        if not self.stay:
            self.cached = len(pages) * PAGE_TOKENS
        self.stay += 1
        self.pages, self.sealed, self.computed = pages, len(pages), len(pages) * PAGE_TOKENS

    def move(self, state: State) -> None:
        assert state in MOVES[self.state], f"slot {self.index}: {self.state} can't become {state}"
        self.state = state

    def samples(self, end: int) -> bool:
        """Whether a chunk up to position `end` chooses the next token."""
        return end == self.length < self.max_length

    def scoring(self, end: int) -> range:
        """Positions of a chunk up to `end` whose logits are still owed as the next prompt token's log-probability."""
        last = len(self.request.prompt) - 1
        return range(max(self.computed, self.scored), min(end, last)) if self.scored < last else _NOTHING

    def advance(self, end: int) -> Chunk:
        """The chunk up to position `end`, whose pages the chat holds; from here on it counts as computed."""
        start, owed, samples = self.computed, self.scoring(end), self.samples(end)
        rows = tuple(position - start for position in owed) if owed else ()
        tokens = tuple(self.tokens[start:end])
        if end > len(self.tokens):
            tokens += (PENDING,)
        chunk = Chunk(self.index, self.request, start, tokens, self.pages, samples, rows, self.cached)
        self.computed = end
        if owed:
            self.scored = owed.stop
        if samples:
            self.length += 1
            if self.state is not State.DECODE:
                self.move(State.DECODE)
        return chunk
