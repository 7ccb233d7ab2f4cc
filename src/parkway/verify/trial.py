"""Runs chats through engines: each alone for what its answer should be, then all of one configuration together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from parkway.engine.engine import Engine
from parkway.verify.answers import Answer, Difference, first_difference
from parkway.verify.cast import Chat
from parkway.verify.configurations import Configuration
from parkway.verify.engines import Engines
from parkway.verify.traffic import Occasion, Visit


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one engine, or of several: how often chats were parked, by a copy out or not; how often one came back by a
    copy (`restores`), and how often one had to be computed again. `prompt_parks` found chats in their prompt;
    `cached_tokens` of prompts were found in the cache."""

    parks: int = 0
    restores: int = 0
    recomputes: int = 0
    prompt_parks: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one configuration. `missed`: what it was to do and did not, so that it has not tried what its name
    says."""

    configuration: Configuration
    chats: int
    compared_steps: int
    counts: Counts
    differences: list[tuple[Chat, Difference]]
    missed: list[str]


def answers_alone(engines: Engines, chats: Sequence[Chat]) -> Iterable[tuple[Chat, Answer]]:
    """Each chat by itself, one after the other."""
    engine = engines.alone(max(chat.pages for chat in chats))
    for chat in chats:
        (answer,), _ = _answers(engine, [Visit(0, chat)])
        yield chat, answer


def attempt(engines: Engines, occasion: Occasion, alone: Mapping[Chat, Answer]) -> Trial:
    """Runs one configuration and compares every chat in it with its answer alone."""
    answers, counts = _answers(engines.together(occasion), occasion.visits)
    there = [(visit.chat, answer) for visit, answer in zip(occasion.visits, answers, strict=True)]
    found = [(chat, first_difference(alone[chat], answer)) for chat, answer in there]
    return Trial(
        occasion.configuration,
        chats=len(there),
        compared_steps=sum(answer.compared_steps for answer in answers),
        counts=counts,
        differences=[(chat, difference) for chat, difference in found if difference],
        missed=list(_missed(occasion.configuration, there, counts)),
    )


def _missed(configuration: Configuration, there: list[tuple[Chat, Answer]], counts: Counts) -> Iterator[str]:
    """What did not happen, though the configuration says so."""
    for chat, answer in there:
        parks = chat.parks(configuration.park_every)
        if answer.parks < parks:
            yield f"the {chat} was parked {answer.parks} times, not {parks}"
    if counts.parks and not configuration.park_every:
        yield f"chats were parked {counts.parks} times"
    if configuration.kept == "copied" and not counts.restores:
        yield "no chat came back from the host"
    if configuration.kept == "copied" and counts.recomputes:
        yield f"chats were computed again {counts.recomputes} times"
    if configuration.kept == "recomputed" and counts.restores:
        yield f"chats came back from the host {counts.restores} times"
    if configuration.kept == "recomputed" and counts.recomputes < counts.parks - counts.prompt_parks:
        yield f"chats were computed again {counts.recomputes} times only"


def _answers(engine: Engine, visits: list[Visit]) -> tuple[list[Answer], Counts]:
    """Steps the engine until every visitor, in order of arrival, has its answer."""
    answers = [Answer() for _ in visits]
    arrived = step = restores = 0
    while arrived < len(visits) or not engine.idle:
        while arrived < len(visits) and visits[arrived].step <= step:
            engine.arrive(visits[arrived].chat.request(arrived))
            arrived += 1
        report = engine.step()
        for output in report.outputs if report else ():
            answers[output.request_id].take(output)
        if report and report.view:
            restores = sum(report.view.restore.counts)
        step += all(map(_may_be_followed, visits[:arrived], answers))
    told = engine.snapshot
    prompt_parks = sum(answer.prompt_parks for answer in answers)
    return answers, Counts(told.parks, restores, told.recomputes, prompt_parks, told.cached_tokens)


def _may_be_followed(visit: Visit, answer: Answer) -> bool:
    return answer.ending is not None or len(answer.steps) >= visit.first
