"""Who is there: the chats of a verification, and when each arrives in one configuration. Knows no engine."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Literal

from msgspec import structs

from parkway.plan.pages import pages_for
from parkway.plan.step import PAGE_TOKENS
from parkway.request import Request, SamplingParams
from parkway.verify.configurations import Configuration, Device, Prefix, Sampling

Mode = Literal["quick", "full"]

Prompt = tuple[int, ...]

TOP_LOGPROBS = 3

BRIEF = 2
"""Answer tokens of who was there before a subject and has gone: too few to give back pages on purpose."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many chats for beside a subject, and what their lengths in tokens are drawn from."""

    chats: int
    prompts: Sequence[int]
    answers: Sequence[int]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is computed. Subjects end their prompts just before, at and just after edges of pages and splits.

    Where a step computes one token of a prompt, a subject's has `longest_by_ones` at most. There, and where many wait
    for a slot, the first crowd is beside it, else the last.
    """

    subject_prompts: tuple[int, ...]
    subject_answer: int
    crowds: tuple[Crowd, ...]
    longest_by_ones: int
    give_back_every: int
    sample: int


_CPU_SIZES: dict[Mode, Size] = {
    "quick": Size(
        (5, 65, 130), 12, (Crowd(15, range(1, 17), range(3, 9)),), longest_by_ones=130, give_back_every=5, sample=2
    ),
    "full": Size(
        (5, 63, 64, 65, 130, 300),
        32,
        (Crowd(15, range(1, 120), range(8, 33)),),
        longest_by_ones=300,
        give_back_every=7,
        sample=30,
    ),
}
_GPU_SIZES: dict[Mode, Size] = {
    "quick": Size(
        (5, 65, 257),
        8,
        (Crowd(63, range(1, 9), range(2, 5)), Crowd(63, range(1, 41), range(6, 11))),
        longest_by_ones=65,
        give_back_every=5,
        sample=3,
    ),
    "full": Size(
        (5, 63, 64, 65, 130, 255, 256, 257, 513, 1025),
        20,
        (
            Crowd(63, range(1, 17), range(3, 9)),
            Crowd(63, (*range(1, 120), *range(250, 520, 9)), range(12, 25)),
        ),
        longest_by_ones=257,
        give_back_every=7,
        sample=30,
    ),
}
SIZES: dict[Device, dict[Mode, Size]] = {"cpu": _CPU_SIZES, "cuda": _GPU_SIZES}

_GREEDY = SamplingParams(temperature=0)
_SAMPLED = (
    SamplingParams(),
    SamplingParams(temperature=0.8, top_p=0.9),
    SamplingParams(temperature=1.3, top_k=40, min_p=0.02),
)


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

    def request(self, request_id: int) -> Request:
        return Request(id=request_id, prompt=list(self.prompt), sampling=self.sampling, seed=self.seed)


@dataclass(frozen=True, slots=True)
class Visit:
    """A chat that arrives before the engine's step of that number.

    The engine's steps until it has its `first` answer tokens don't count: those of a later step wait for them.
    """

    step: int
    chat: Chat
    first: int = 0


@dataclass(frozen=True, slots=True)
class Occasion:
    """A configuration with its visits in order of arrival: some before the subject, some while it is answered.
    Twins and doubles come on top of those `beside`.

    Chats that are never replayed have all the `pages` that they can use; the others may have to share a few. A step
    has `step_rows`: room for one whole chunk beside decoding chats, or for everything at once.
    """

    configuration: Configuration
    visits: list[Visit]
    pages: int
    step_rows: int
    give_back_every: int


@dataclass(frozen=True, slots=True)
class Cast:
    """All chats of a verification: subjects by sampling, the crowds that may be beside them, and who was there before.

    The latter are by the prompt of the subject. `twins` ask the same, another way and for less. `doubles` have another
    first page before the same pages, which a subject must not take for its own; short prompts have no double.
    """

    size: Size
    seed: int
    subjects: dict[Sampling, list[Chat]]
    crowds: list[list[Chat]]
    twins: dict[Prompt, Chat]
    doubles: dict[Prompt, Chat]

    @classmethod
    def drawn(cls, size: Size, vocab_size: int, seed: int) -> "Cast":
        """Prompts of random tokens and sampling parameters, the same for the same seed."""
        draw = _Draw(vocab_size, random.Random(f"{seed} cast"))
        prompts = [draw.prompt(length) for length in size.subject_prompts]
        subjects: dict[Sampling, list[Chat]] = {
            "greedy": [draw.chat(prompt, size.subject_answer, "greedy") for prompt in prompts],
            "sampled": [draw.chat(prompt, size.subject_answer, "sampled") for prompt in prompts],
        }
        crowds = [draw.crowd(crowd) for crowd in size.crowds]
        twins = {prompt: draw.twin(prompt) for prompt in prompts}
        doubles = {prompt: draw.double(prompt) for prompt in prompts if _findable(prompt) > PAGE_TOKENS}
        return cls(size, seed, subjects, crowds, twins, doubles)

    @property
    def chats(self) -> list[Chat]:
        before = self.twins.values(), self.doubles.values()
        return [chat for chats in (*self.subjects.values(), *self.crowds, *before) for chat in chats]

    def occasions(self, configurations: Iterable[Configuration]) -> list["Occasion"]:
        """One for each configuration, the subjects of its kind of sampling in turn."""
        in_turn = {sampling: cycle(chats) for sampling, chats in self.subjects.items()}
        by_ones = {sampling: cycle(filter(self._fits_ones, chats)) for sampling, chats in self.subjects.items()}
        return [
            self._occasion(
                each,
                next((by_ones if each.chunk == 1 else in_turn)[each.sampling]),
                random.Random(f"{self.seed} occasion {index}"),
            )
            for index, each in enumerate(configurations)
        ]

    def _fits_ones(self, chat: Chat) -> bool:
        return len(chat.prompt) <= self.size.longest_by_ones

    def _occasion(self, configuration: Configuration, subject: Chat, rng: random.Random) -> "Occasion":
        visits = self._visits(configuration, subject, rng)
        pages = [visit.chat.pages for visit in visits]
        enough = sum(sorted(pages, reverse=True)[: configuration.slots])
        often = configuration.replayed == "often"
        chunk = rng.choice((configuration.chunk, None))
        if chunk is None or _full_house(configuration):
            chunk = sum(pages) * PAGE_TOKENS
        return Occasion(
            configuration,
            visits,
            pages=rng.choice((rng.randint(max(pages), enough), enough)) if often else enough,
            step_rows=configuration.slots + chunk,
            give_back_every=self.size.give_back_every if often else 0,
        )

    def _visits(self, configuration: Configuration, subject: Chat, rng: random.Random) -> list[Visit]:
        """The subject and those beside it: all at once, so that steps get wide, or spread over the subject's stay.

        Those who were there before come one by one, and may be beside some of the others too.
        """
        by_ones = configuration.chunk == 1
        before = self._before(configuration.prefix, subject)
        step = len(before) + rng.randrange(4)
        computed = len(subject.prompt) - (_findable(subject.prompt) if before else 0)
        stay = (computed if by_ones else 1) + self.size.subject_answer
        hurried = by_ones or configuration.beside > 4 * configuration.slots
        beside = rng.sample(self.crowds[0 if hurried else -1], configuration.beside)
        at_once, spread = range(step, step + 1), range(step + stay)
        steps = at_once if _full_house(configuration) else rng.choice((at_once, spread))
        visits = [*before, Visit(step, subject), *(Visit(rng.choice(steps), chat) for chat in beside)]
        rng.shuffle(visits)
        return sorted(visits, key=lambda visit: visit.step)

    def _before(self, prefix: Prefix, subject: Chat) -> list[Visit]:
        """The twin whose pages the subject finds, and the double before it. Each is computed when the next comes."""
        if prefix == "cold":
            return []
        chats = [self.doubles[subject.prompt]] if subject.prompt in self.doubles else []
        gone = [Visit(step, chat, first=BRIEF) for step, chat in enumerate([*chats, self.twins[subject.prompt]])]
        return gone if prefix == "cached" else [*gone[:-1], Visit(len(chats), self._sibling(subject), first=1)]

    def _sibling(self, subject: Chat) -> Chat:
        """The subject of the other kind of sampling with the same prompt."""
        same = (chat for chats in self.subjects.values() for chat in chats if chat.prompt == subject.prompt)
        return next(chat for chat in same if chat != subject)


def _full_house(configuration: Configuration) -> bool:
    """The chats just fill the slots. They come at once and find room for everything: no steps are wider."""
    return configuration.beside + 1 == configuration.slots


def _findable(prompt: Prompt) -> int:
    """How many tokens of a prompt can be found in the cache: whole pages, never the last token."""
    return (len(prompt) - 1) // PAGE_TOKENS * PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class _Draw:
    vocab_size: int
    rng: random.Random

    def prompt(self, length: int) -> Prompt:
        return tuple(self.rng.randrange(self.vocab_size) for _ in range(length))

    def crowd(self, crowd: Crowd) -> list[Chat]:
        """Greedy and sampled chats in turns. About every third also wants its prompt's log-probabilities."""
        kinds: cycle[Sampling] = cycle(("greedy", "sampled"))
        return [self._neighbour(crowd, next(kinds)) for _ in range(crowd.chats)]

    def _neighbour(self, crowd: Crowd, sampling: Sampling) -> Chat:
        prompt = self.prompt(self.rng.choice(crowd.prompts))
        return self.chat(prompt, self.rng.choice(crowd.answers), sampling, self.rng.choice((None, None, 1)))

    def twin(self, prompt: Prompt) -> Chat:
        return self._brief(prompt, SamplingParams(temperature=0.6, top_k=20))

    def double(self, prompt: Prompt) -> Chat:
        return self._brief(self.prompt(PAGE_TOKENS) + prompt[PAGE_TOKENS:], _GREEDY)

    def chat(self, prompt: Prompt, answer_tokens: int, sampling: Sampling, prompt_logprobs: int | None = None) -> Chat:
        how = self.rng.choice(_SAMPLED) if sampling == "sampled" else _GREEDY
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
