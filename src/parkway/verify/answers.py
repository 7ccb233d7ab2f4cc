"""What is compared: the tokens of an answer with the bits of their log-probabilities, step by step. Knows no engine."""

import struct
from dataclasses import dataclass, field
from itertools import zip_longest

from parkway.request import Notice, Output, TokenLogprob


@dataclass(frozen=True, slots=True)
class Bits:
    """A token id and its log-probability, equal only where all 32 bits are."""

    token_id: int
    logprob_bits: int

    @classmethod
    def of(cls, token_id: int, logprob: float) -> "Bits":
        return cls(token_id, int.from_bytes(struct.pack(">f", logprob)))

    def __str__(self) -> str:
        (logprob,) = struct.unpack(">f", self.logprob_bits.to_bytes(4))
        return f"token {self.token_id} at {logprob:.9g} (0x{self.logprob_bits:08x})"


@dataclass(frozen=True, slots=True)
class Step:
    """One token of a chat: the chosen one and the most probable ones."""

    position: int
    chosen: Bits
    top: tuple[Bits, ...]

    @classmethod
    def of(cls, token_id: int, logprob: TokenLogprob) -> "Step":
        top = tuple(Bits.of(other, value) for other, value in logprob.top)
        return cls(logprob.position, Bits.of(token_id, logprob.logprob), top)

    @property
    def told(self) -> list[str]:
        return [str(self.chosen), *(f"{rank}. most probable {each}" for rank, each in enumerate(self.top, start=1))]


@dataclass(slots=True)
class Answer:
    """What came of one chat so far: prompt tokens that were scored, answer tokens, and at last why it ended.

    Not compared: how often it was parked, and how often of that before its first token.
    """

    scored: list[Step] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    ending: str | None = None
    parks: int = 0
    prompt_parks: int = 0

    def take(self, output: Output) -> None:
        if output.notice:
            self._note(output.notice)
            return
        self.scored += [Step.of(logprob.token_id, logprob) for logprob in output.prompt_logprobs]
        self.steps += [Step.of(*pair) for pair in zip(output.token_ids, output.logprobs, strict=True)]
        self.ending = output.error or output.finish_reason

    def _note(self, notice: Notice) -> None:
        if notice.state == "preempted":
            self.parks += 1
            self.prompt_parks += not self.steps

    @property
    def compared_steps(self) -> int:
        return len(self.scored) + len(self.steps)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an answer first leaves the one that it should be."""

    where: str
    expected: str
    found: str


def first_difference(expected: Answer, found: Answer) -> Difference | None:
    """None if every token, every bit of every log-probability and the ending are the same."""
    for kind, wanted, got in (
        ("prompt token", expected.scored, found.scored),
        ("answer token", expected.steps, found.steps),
    ):
        for number, (one, other) in enumerate(zip_longest(wanted, got), start=1):
            if one != other:
                return Difference(f"{kind} {number}", *_first_told(one, other))
    if expected.ending != found.ending:
        return Difference("the end", str(expected.ending), str(found.ending))
    return None


def _first_told(wanted: Step | None, got: Step | None) -> tuple[str, str]:
    """The first two values that differ, for a person."""
    values = zip_longest(wanted.told if wanted else [], got.told if got else [], fillvalue="nothing")
    return next((pair for pair in values if pair[0] != pair[1]), (str(wanted), str(got)))
