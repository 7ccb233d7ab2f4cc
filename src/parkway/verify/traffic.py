"""Who is there: the chats of a verification, and when each arrives in one configuration. Knows no engine."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle

from msgspec import structs

from parkway.plan.pages import pages_for
from parkway.request import Request, SamplingParams
from parkway.verify.configurations import Configuration, Sampling

TOP_LOGPROBS = 3
MOST_NEIGHBOURS = 15


@dataclass(frozen=True, slots=True)
class Size:
    """How much is computed. Subjects end their prompts just before, at and just after edges of pages and splits."""

    subject_prompts: tuple[int, ...]
    subject_answer: int
    neighbour_prompts: range
    neighbour_answers: range
    give_back_every: int
    sample: int


SIZES = {
    "quick": Size((5, 65, 130), 12, range(1, 17), range(3, 9), give_back_every=5, sample=4),
    "full": Size((5, 63, 64, 65, 130, 300), 32, range(1, 120), range(8, 33), give_back_every=7, sample=60),
}

_GREEDY = SamplingParams(temperature=0)
_SAMPLED = (
    SamplingParams(),
    SamplingParams(temperature=0.8, top_p=0.9),
    SamplingParams(temperature=1.3, top_k=40, min_p=0.02),
)


@dataclass(frozen=True, slots=True)
class Chat:
    """One prompt and how its answer is sampled: all that an answer may depend on."""

    prompt: tuple[int, ...]
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
    """A chat that arrives before the engine's step of that number."""

    step: int
    chat: Chat


@dataclass(frozen=True, slots=True)
class Occasion:
    """A configuration with its visits in order of arrival: some before the subject, some while it is answered.

    Chats that are never replayed have all the `pages` that they can use; the others may have to share a few.
    """

    configuration: Configuration
    visits: list[Visit]
    pages: int
    give_back_every: int


@dataclass(frozen=True, slots=True)
class Cast:
    """All chats of a verification: subjects by sampling, and those that may be beside them."""

    size: Size
    seed: int
    subjects: dict[Sampling, list[Chat]]
    neighbours: list[Chat]

    @classmethod
    def drawn(cls, size: Size, vocab_size: int, seed: int) -> "Cast":
        """Prompts of random tokens and sampling parameters, the same for the same seed."""
        draw = _Draw(size, vocab_size, random.Random(f"{seed} cast"))
        prompts = [draw.prompt(length) for length in size.subject_prompts]
        subjects: dict[Sampling, list[Chat]] = {
            "greedy": [draw.chat(prompt, size.subject_answer, "greedy") for prompt in prompts],
            "sampled": [draw.chat(prompt, size.subject_answer, "sampled") for prompt in prompts],
        }
        kinds: tuple[Sampling, Sampling] = ("greedy", "sampled")
        neighbours = [draw.neighbour(kinds[index % 2]) for index in range(MOST_NEIGHBOURS)]
        return cls(size, seed, subjects, neighbours)

    @property
    def chats(self) -> list[Chat]:
        return [*self.subjects["greedy"], *self.subjects["sampled"], *self.neighbours]

    def occasions(self, configurations: Iterable[Configuration]) -> list["Occasion"]:
        """One for each configuration, the subjects of its kind of sampling in turn."""
        in_turn = {sampling: cycle(chats) for sampling, chats in self.subjects.items()}
        return [
            self._occasion(each, next(in_turn[each.sampling]), random.Random(f"{self.seed} occasion {index}"))
            for index, each in enumerate(configurations)
        ]

    def _occasion(self, configuration: Configuration, subject: Chat, rng: random.Random) -> "Occasion":
        first = Visit(rng.randrange(4), subject)
        last_step = first.step + self.size.subject_answer
        beside = rng.sample(self.neighbours, configuration.neighbours)
        visits = [first, *(Visit(rng.randrange(last_step), chat) for chat in beside)]
        pages = sorted((visit.chat.pages for visit in visits), reverse=True)[: configuration.slots]
        often = configuration.replayed == "often"
        return Occasion(
            configuration,
            sorted(visits, key=lambda visit: visit.step),
            pages=rng.randint(max(pages), sum(pages)) if often else sum(pages),
            give_back_every=self.size.give_back_every if often else 0,
        )


@dataclass(frozen=True, slots=True)
class _Draw:
    size: Size
    vocab_size: int
    rng: random.Random

    def prompt(self, length: int) -> tuple[int, ...]:
        return tuple(self.rng.randrange(self.vocab_size) for _ in range(length))

    def neighbour(self, sampling: Sampling) -> Chat:
        """About every third is also scored: its prompt's log-probabilities are asked for."""
        prompt = self.prompt(self.rng.choice(self.size.neighbour_prompts))
        return self.chat(
            prompt, self.rng.choice(self.size.neighbour_answers), sampling, self.rng.choice((None, None, 1))
        )

    def chat(
        self, prompt: tuple[int, ...], answer_tokens: int, sampling: Sampling, prompt_logprobs: int | None = None
    ) -> Chat:
        how = self.rng.choice(_SAMPLED) if sampling == "sampled" else _GREEDY
        params = structs.replace(
            how,
            max_tokens=answer_tokens,
            ignore_eos=True,
            logprobs=TOP_LOGPROBS,
            prompt_logprobs=prompt_logprobs,
        )
        return Chat(prompt, params, self.rng.getrandbits(63))
