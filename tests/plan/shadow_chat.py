"""A toy model and what it answers to a request that is alone."""

from dataclasses import dataclass, field

from parkway.plan.planner import Limits
from parkway.request import Request

NOTHING = -1
"""The digest of a row that nobody wrote."""


def absorb(digest: int, token_id: int) -> int:
    """The digest of all tokens up to here: no two beginnings that the machine draws share one."""
    return (digest * 1_000_003 + token_id + 1) % (2**61 - 1)


def next_token(digest: int) -> int:
    return digest % 97


@dataclass(eq=False)
class Chat:
    """A request with all that will come of it, and how far the planner has brought it.

    `tokens` are prompt and answer, `end` of them, and after a stop id what steps in flight may sample before it is
    known. `rows` are their digests. `length` counts the `known` tokens and those in flight. `losses` counts how often
    it has lost its pages, and so tells one stay in the pool from the next. `cached` is what it found there at first.
    """

    request: Request
    tokens: list[int]
    end: int
    reason: str
    rows: list[int]
    max_length: int
    known: int
    length: int
    slot: int = -1
    computed: int = 0
    decodes: bool = False
    scored: set[int] = field(default_factory=set)
    pages: tuple[int, ...] = ()
    losses: int = 0
    cached: int = 0
    ended: bool = False

    @classmethod
    def alone(cls, request: Request, limits: Limits) -> "Chat":
        tokens, prompt, most = list(request.prompt), len(request.prompt), request.sampling.max_tokens
        max_length = limits.n_ctx if most is None else min(limits.n_ctx, prompt + most)
        stop_ids = frozenset() if request.sampling.ignore_eos else request.stop_ids
        end, reason = max_length, "length"
        rows: list[int] = []
        digest = 0
        while len(rows) < min(max_length, end + limits.ahead):
            if len(rows) == len(tokens):
                tokens.append(next_token(digest))
                if reason == "length" and tokens[-1] in stop_ids:
                    end, reason = len(tokens), "stop"
            digest = absorb(digest, tokens[len(rows)])
            rows.append(digest)
        return cls(request, tokens, end, reason, rows, max_length, known=prompt, length=prompt)

    @property
    def answer_tokens(self) -> int:
        return self.length - len(self.request.prompt)

    @property
    def full(self) -> bool:
        return self.decodes and self.length == self.max_length

    @property
    def waits(self) -> bool:
        """There is nothing to compute before what is in flight has landed."""
        return self.full or self.computed == self.length

    @property
    def owed(self) -> set[int]:
        """Positions whose logits give a log-probability of the prompt that nobody has computed yet."""
        if self.request.sampling.prompt_logprobs is None:
            return set()
        return set(range(len(self.request.prompt) - 1)) - self.scored

    def lose_pages(self) -> None:
        self.computed, self.pages, self.decodes = 0, (), False
        self.losses += 1
