"""When each chat arrives in one configuration, and how much room they find. Knows no engine."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle

from parkway.plan.parking import SAVED_AT_ONCE
from parkway.plan.step import PAGE_TOKENS
from parkway.verify.cast import BRIEF, Cast, Chat, findable
from parkway.verify.configurations import SELDOM, Configuration, Prefix, Sampling

EARLY = 3
"""Tokens before a park of the subject that a scorer comes: when one is told, others may be in flight."""


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

    Chats that are never parked have all the `pages` that they can use; the others may have to share a few. On the host
    there is room for every chat with `host_pages`. A step has `step_rows`: room for one whole chunk beside decoding
    chats, or for everything at once; and `scored_rows` beside those that decode for log-probabilities of prompts: so
    few that a prompt takes a while, or as many as there can be (None).
    """

    configuration: Configuration
    visits: list[Visit]
    pages: int
    host_pages: int
    step_rows: int
    scored_rows: int | None


def occasions(cast: Cast, configurations: Iterable[Configuration]) -> list[Occasion]:
    """One for each configuration, the subjects of its kind in turn."""
    in_turn: dict[tuple[Chat, ...], Iterator[Chat]] = {}
    made = []
    for index, each in enumerate(configurations):
        subjects = _subjects(cast, each)
        subject = next(in_turn.setdefault(subjects, cycle(subjects)))
        made.append(_Scene(cast, each, random.Random(f"{cast.seed} occasion {index}")).occasion(subject))
    return made


def _parts(cast: Cast, configuration: Configuration) -> dict[Sampling, list[Chat]]:
    return cast.lasting if configuration.park_every == SELDOM else cast.subjects


def _subjects(cast: Cast, configuration: Configuration) -> tuple[Chat, ...]:
    """Those that can be the subject."""
    chats = _parts(cast, configuration)[configuration.sampling]
    if configuration.chunk != 1:
        return tuple(chats)
    longest = cast.size.longest_by_ones // (1 if configuration.kept in ("copied", "-") else 4)
    return tuple(chat for chat in chats if len(chat.prompt) <= longest)


@dataclass(frozen=True, slots=True)
class _Scene:
    """Draws one occasion."""

    cast: Cast
    configuration: Configuration
    rng: random.Random

    def occasion(self, subject: Chat) -> Occasion:
        configuration, rng = self.configuration, self.rng
        visits = self._visits(subject)
        pages = [visit.chat.pages for visit in visits]
        enough = sum(sorted(pages, reverse=True)[: configuration.slots])
        chunk = rng.choice((configuration.chunk, None))
        if chunk is None or self._full_house:
            chunk = sum(pages) * PAGE_TOKENS
        return Occasion(
            configuration,
            visits,
            pages=self._pages(max(pages), enough),
            host_pages=enough + SAVED_AT_ONCE,
            step_rows=configuration.slots + chunk,
            scored_rows=1 if self.configuration.squeezed else None,
        )

    def _pages(self, fewest: int, enough: int) -> int:
        if self.configuration.squeezed:
            return self._squeeze(fewest)
        scarce = self.configuration.park_every and not self._full_house
        return self.rng.choice((self.rng.randint(fewest, enough), enough)) if scarce else enough

    def _visits(self, subject: Chat) -> list[Visit]:
        """The subject and those beside it: all at once, so that steps get wide, or spread over the subject's stay.

        Those who were there before come one by one, and may be beside some of the others too.
        """
        configuration, rng = self.configuration, self.rng
        by_ones = configuration.chunk == 1
        before = self._before(configuration.prefix, subject)
        step = len(before) + rng.randrange(4)
        computed = len(subject.prompt) - (findable(subject.prompt) if before else 0)
        stay = (computed if by_ones else 1) + (subject.sampling.max_tokens or 0)
        beside = self._beside(hurried=by_ones or configuration.beside > 4 * configuration.slots)
        at_once, spread = range(step, step + 1), range(step + stay)
        steps = at_once if self._full_house or self.configuration.squeezed else rng.choice((at_once, spread))
        first = self._first(max(chat.pages for chat in (subject, *beside))) if self.configuration.squeezed else 0
        visits = [*before, Visit(step, subject, first), *(Visit(rng.choice(steps), chat) for chat in beside)]
        rng.shuffle(visits)
        late = [Visit(step + 1, self.cast.scorer)] if self.configuration.squeezed else []
        return sorted([*visits, *late], key=lambda visit: visit.step)

    def _beside(self, *, hurried: bool) -> list[Chat]:
        """Where all slots are full, those first whose whole prompt can be computed at once."""
        first, last = self.cast.crowds[0], self.cast.crowds[-1]
        if hurried or not self._full_house:
            return self.rng.sample(first if hurried else last, self.configuration.beside)
        silent = (chat for chat in (*last, *first) if chat.sampling.prompt_logprobs is None)
        return list(dict.fromkeys([*silent, *last]))[: self.configuration.beside]

    def _squeeze(self, fewest: int) -> int:
        """Pages of the pool where the scorer does not fit for long, given those that the largest chat needs."""
        return max(fewest, self.cast.scorer.pages + 3)

    def _first(self, fewest: int) -> int:
        """Answer tokens of the subject after which the scorer comes: just before the park that needs a page too many.

        A chat comes in only if there is room for it and for a page's tokens more of everybody.
        """
        return SELDOM * (self._squeeze(fewest) - self.cast.scorer.pages - 2) - EARLY

    def _before(self, prefix: Prefix, subject: Chat) -> list[Visit]:
        """The twin whose pages the subject finds, and the double before it. Each is computed when the next comes."""
        if prefix == "cold":
            return []
        doubles, twin = self.cast.doubles, self.cast.twins[subject.prompt]
        chats = [doubles[subject.prompt]] if subject.prompt in doubles else []
        gone = [Visit(step, chat, first=BRIEF) for step, chat in enumerate([*chats, twin])]
        return gone if prefix == "cached" else [*gone[:-1], Visit(len(chats), self._sibling(subject), first=1)]

    def _sibling(self, subject: Chat) -> Chat:
        """The subject of the other kind of sampling that is like it."""
        other: Sampling = "greedy" if self.configuration.sampling == "sampled" else "sampled"
        those = _parts(self.cast, self.configuration)[other]
        return next(chat for chat in those if chat.prompt == subject.prompt)

    @property
    def _full_house(self) -> bool:
        """The chats just fill the slots. They come at once and find room for everything, so that a step computes all of
        them: no steps have more chats."""
        return self.configuration.beside + 1 == self.configuration.slots
