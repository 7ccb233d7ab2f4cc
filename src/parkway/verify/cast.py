"""Who may be there: the chats of a verification, by the part that they play. Knows no engine, no time.

How much is computed is decided here."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Literal

from msgspec import structs

from parkway.plan.pages import pages_for
from parkway.plan.step import PAGE_TOKENS
from parkway.request import Request, SamplingParams
from parkway.verify.configurations import OFTEN, SELDOM, Device, Sampling

Mode = Literal["quick", "full"]

Prompt = tuple[int, ...]

TOP_LOGPROBS = 3

BRIEF = 2
"""Answer tokens of who was there before a subject and has gone: too few to be parked."""

LASTING = PAGE_TOKENS + 1
"""Prompt tokens of a subject with a long answer: each of its parks comes when it is about to need another page."""

SCORED = 150
"""Prompt tokens of a scorer, which wants their log-probabilities: they take a few steps at least."""


BEYOND = 3 * PAGE_TOKENS + 3
"""Prompt tokens of a subject beyond a window: more than a ring has, where chunks are of 100 tokens at most."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many chats for beside a subject, and what their lengths in tokens are drawn from. `scored`: about every third
    also wants its prompt's log-probabilities, which takes it a while."""

    chats: int
    prompts: Sequence[int]
    answers: Sequence[int]
    scored: bool = True


@dataclass(frozen=True, slots=True)
class Size:
    """How much is computed. Subjects end their prompts just before, at and just after edges of pages and splits.

    A subject goes through `cycles` parks and returns at least; where those are far apart it has the prompt of
    `LASTING` tokens. Where a step computes one token of a prompt, a subject's has `longest_by_ones` at most, a quarter
    of that where it is computed again and again. There, and where many wait for a slot, the first crowd is beside it,
    else the last. Where layers see a window, one of `widest_window` at most, a subject's prompt is longer than their
    rings.
    """

    subject_prompts: tuple[int, ...]
    cycles: int
    crowds: tuple[Crowd, ...]
    longest_by_ones: int
    sample: int
    widest_window: int

    def beyond(self, window: int) -> "Size":
        """The same for a model some of whose layers see such a window."""
        if not 0 < window <= self.widest_window:
            return self
        return replace(self, subject_prompts=(*self.subject_prompts, window + BEYOND))

    def answer_tokens(self, park_every: int) -> int:
        """Of a subject: one token more than its last park needs."""
        return self.cycles * (park_every or OFTEN) + 1


_CPU_SIZES: dict[Mode, Size] = {
    "quick": Size(
        (5, 65, 130),
        cycles=2,
        crowds=(Crowd(15, range(1, 17), range(3, 9)),),
        longest_by_ones=130,
        sample=2,
        widest_window=512,
    ),
    "full": Size(
        (5, 63, 64, 65, 130, 300),
        cycles=6,
        crowds=(Crowd(15, range(1, 17), range(3, 9)), Crowd(15, range(1, 120), (*range(8, 33), *[50] * 9))),
        longest_by_ones=300,
        sample=8,
        widest_window=1024,
    ),
}
_GPU_SIZES: dict[Mode, Size] = {
    "quick": Size(
        (5, 65, 257),
        cycles=2,
        crowds=(Crowd(63, range(1, 9), range(2, 5), scored=False), Crowd(63, range(1, 41), range(6, 11))),
        longest_by_ones=65,
        sample=3,
        widest_window=1024,
    ),
    "full": Size(
        (5, 63, 64, 65, 255, 256, 257, 513, 1025),
        cycles=6,
        crowds=(
            Crowd(63, range(1, 9), range(2, 4), scored=False),
            Crowd(63, (*range(1, 120), *range(250, 520, 9)), (*range(4, 9), *range(4, 9), 50)),
        ),
        longest_by_ones=257,
        sample=4,
        widest_window=4096,
    ),
}
SIZES: dict[Device, dict[Mode, Size]] = {"cpu": _CPU_SIZES, "cuda": _GPU_SIZES}

_GREEDY = SamplingParams(temperature=0)
_SAMPLED = (
    SamplingParams(),
    SamplingParams(temperature=0.9, repeat_penalty=1.2, repeat_last_n=40, presence_penalty=0.3),
    SamplingParams(temperature=0.8, top_p=0.9),
    SamplingParams(top_k=60, frequency_penalty=0.6, logit_bias=((3, 4.0), (17, 3.0), (40, -100.0))),
    SamplingParams(temperature=1.3, top_k=40, min_p=0.02),
    SamplingParams(mirostat=2, mirostat_tau=4.0, dry_multiplier=0.8, dry_allowed_length=0, dry_breakers=((3,), (5, 6))),
    SamplingParams(temperature=0.8, dynatemp_range=0.3, top_n_sigma=2.0, typical_p=0.9, xtc_probability=0.5),
    SamplingParams(samplers=("min_p", "top_k", "temperature"), min_p=0.05, top_k=30, temperature=1.2),
)
"""In turn, so that there are some of each."""


@dataclass(frozen=True, slots=True)
class Chat:
    """One prompt and how its answer is sampled: all that an answer may depend on."""

    prompt: Prompt
    sampling: SamplingParams
    seed: int

    def __str__(self) -> str:
        how = "sampled" if self.sampling.temperature else "greedy"
        return f"{how} chat of {len(self.prompt)} prompt tokens"

    @property
    def pages(self) -> int:
        return pages_for(len(self.prompt) + (self.sampling.max_tokens or 0))

    def parks(self, every: int) -> int:
        """How often it is parked at least if it is parked every so many answer tokens, 0 for never."""
        return ((self.sampling.max_tokens or 0) - 1) // every if every else 0

    def request(self, request_id: int) -> Request:
        return Request(id=request_id, prompt=list(self.prompt), sampling=self.sampling, seed=self.seed)


@dataclass(frozen=True, slots=True)
class Cast:
    """All chats of a verification: subjects by sampling, the crowds that may be beside them, and who was there before.

    `lasting` are subjects with long answers; `scorer` is who they may park in its prompt. Who was there before is by
    the prompt of the subject. `twins` ask the same, another way and for less. `doubles` have another first page before
    the same pages, which a subject must not take for its own; short prompts have no double.
    """

    size: Size
    seed: int
    subjects: dict[Sampling, list[Chat]]
    lasting: dict[Sampling, list[Chat]]
    scorer: Chat
    crowds: list[list[Chat]]
    twins: dict[Prompt, Chat]
    doubles: dict[Prompt, Chat]

    @classmethod
    def drawn(cls, size: Size, vocab_size: int, seed: int) -> "Cast":
        """Prompts of random tokens and sampling parameters, the same for the same seed."""
        draw = _Draw(vocab_size, random.Random(f"{seed} cast"))
        prompts = [draw.prompt(length) for length in size.subject_prompts]
        lasting = [prompt for prompt in prompts if len(prompt) == LASTING]
        return cls(
            size,
            seed,
            subjects=draw.subjects(prompts, size.answer_tokens(OFTEN)),
            lasting=draw.subjects(lasting, size.answer_tokens(SELDOM)),
            scorer=draw.chat(draw.prompt(SCORED), BRIEF, "sampled", TOP_LOGPROBS),
            crowds=[draw.crowd(crowd) for crowd in size.crowds],
            twins={prompt: draw.twin(prompt) for prompt in prompts},
            doubles={prompt: draw.double(prompt) for prompt in prompts if findable(prompt) > PAGE_TOKENS},
        )

    @property
    def chats(self) -> list[Chat]:
        subjects = *self.subjects.values(), *self.lasting.values()
        before = self.twins.values(), self.doubles.values()
        return [chat for chats in (*subjects, [self.scorer], *self.crowds, *before) for chat in chats]


def findable(prompt: Prompt) -> int:
    """How many tokens of a prompt can be found in the cache: whole pages, never the last token."""
    return (len(prompt) - 1) // PAGE_TOKENS * PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class _Draw:
    vocab_size: int
    rng: random.Random
    sampled: Iterator[SamplingParams] = field(default_factory=lambda: cycle(_SAMPLED))

    def prompt(self, length: int) -> Prompt:
        return tuple(self.rng.randrange(self.vocab_size) for _ in range(length))

    def subjects(self, prompts: list[Prompt], answer_tokens: int) -> dict[Sampling, list[Chat]]:
        """Each prompt once greedy, once sampled."""
        return {
            "greedy": [self.chat(prompt, answer_tokens, "greedy") for prompt in prompts],
            "sampled": [self.chat(prompt, answer_tokens, "sampled") for prompt in prompts],
        }

    def crowd(self, crowd: Crowd) -> list[Chat]:
        """Greedy and sampled chats in turns."""
        kinds: cycle[Sampling] = cycle(("greedy", "sampled"))
        return [self._neighbour(crowd, next(kinds)) for _ in range(crowd.chats)]

    def _neighbour(self, crowd: Crowd, sampling: Sampling) -> Chat:
        prompt = self.prompt(self.rng.choice(crowd.prompts))
        return self.chat(
            prompt, self.rng.choice(crowd.answers), sampling, self.rng.choice((None, None, 1 if crowd.scored else None))
        )

    def twin(self, prompt: Prompt) -> Chat:
        return self._brief(prompt, SamplingParams(temperature=0.6, top_k=20))

    def double(self, prompt: Prompt) -> Chat:
        return self._brief(self.prompt(PAGE_TOKENS) + prompt[PAGE_TOKENS:], _GREEDY)

    def chat(self, prompt: Prompt, answer_tokens: int, sampling: Sampling, prompt_logprobs: int | None = None) -> Chat:
        how = next(self.sampled) if sampling == "sampled" else _GREEDY
        return self._chat(prompt, answer_tokens, how, prompt_logprobs)

    def _brief(self, prompt: Prompt, how: SamplingParams) -> Chat:
        return self._chat(prompt, BRIEF, how)

    def _chat(
        self, prompt: Prompt, answer_tokens: int, how: SamplingParams, prompt_logprobs: int | None = None
    ) -> Chat:
        params = structs.replace(
            how,
            max_tokens=answer_tokens,
            ignore_eos=True,
            logprobs=TOP_LOGPROBS,
            prompt_logprobs=prompt_logprobs,
        )
        return Chat(prompt, params, self.rng.getrandbits(63))
