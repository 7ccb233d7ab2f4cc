"""One chat in its slot: its tokens, how far they are computed, its pages and its state. Knows no pool and no policy."""

from dataclasses import dataclass
from enum import Enum

from parkway.plan.step import Chunk
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
    State.PREEMPTED: frozenset({State.REPLAYING, State.CANCELLED}),
    State.REPLAYING: frozenset({State.DECODE, State.PREEMPTED, State.FINISHED, State.CANCELLED}),
    State.FINISHED: frozenset(),
    State.CANCELLED: frozenset(),
}


@dataclass(slots=True, eq=False)
class Slot:
    """A chat from its start to its end; `index` is its own for that long.

    `tokens` is prompt + answer so far. The KV of the first `computed` of them is in `pages`, or will be once the step
    that was planned last has run. The first `scored` rows of the prompt owe no log-probability (any more).
    """

    index: int
    request: Request
    tokens: list[int]
    max_length: int
    scored: int
    state: State = State.PREFILL
    computed: int = 0
    pages: tuple[int, ...] = ()

    @classmethod
    def start(cls, index: int, request: Request, n_ctx: int) -> "Slot":
        """A chat that has computed nothing yet and may reach `n_ctx` tokens, prompt and answer."""
        prompt, sampling = request.prompt, request.sampling
        max_length = n_ctx if sampling.max_tokens is None else min(n_ctx, len(prompt) + sampling.max_tokens)
        scored = len(prompt) - 1 if sampling.prompt_logprobs is None else 0
        return cls(index, request, list(prompt), max_length, scored)

    @property
    def answer_tokens(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def finish_reason(self) -> str | None:
        """Why nothing follows the tokens that are known; None if something does."""
        ends = self.answer_tokens and self.tokens[-1] in self.request.stop_ids
        if ends and not self.request.sampling.ignore_eos:
            return "stop"
        return "length" if len(self.tokens) == self.max_length else None

    def move(self, state: State) -> None:
        assert state in MOVES[self.state], f"slot {self.index}: {self.state} can't become {state}"
        self.state = state

    def samples(self, end: int) -> bool:
        """Whether a chunk up to position `end` chooses the next token."""
        return end == len(self.tokens) < self.max_length

    def scoring(self, end: int) -> range:
        """Positions of a chunk up to `end` whose logits are still owed as the next prompt token's log-probability."""
        return range(max(self.computed, self.scored), min(end, len(self.request.prompt) - 1))

    def advance(self, end: int) -> Chunk:
        """The chunk up to position `end`, whose pages the chat holds; from here on it counts as computed."""
        start, owed, samples = self.computed, self.scoring(end), self.samples(end)
        rows = tuple(position - start for position in owed) if owed else ()
        chunk = Chunk(self.index, self.request, start, tuple(self.tokens[start:end]), self.pages, samples, rows)
        self.computed = end
        self.scored = max(self.scored, owed.stop)
        if samples and self.state is not State.DECODE:
            self.move(State.DECODE)
        return chunk
