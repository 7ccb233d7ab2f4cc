"""Runs chats through engines: each alone for what its answer should be, then all of one configuration together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from parkway.engine.engine import Engine
from parkway.verify.answers import Answer, Difference, first_difference
from parkway.verify.configurations import Configuration
from parkway.verify.engines import Engines
from parkway.verify.traffic import Chat, Occasion, Visit


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one configuration. `given_back` counts how often a chat gave its pages back, `cached_tokens` the
    tokens of prompts that were found in the cache."""

    configuration: Configuration
    chats: int
    compared_steps: int
    given_back: int
    cached_tokens: int
    differences: list[tuple[Chat, Difference]]


def answers_alone(engines: Engines, chats: Sequence[Chat]) -> Iterable[tuple[Chat, Answer]]:
    """Each chat by itself, one after the other."""
    engine = engines.alone(max(chat.pages for chat in chats))
    for chat in chats:
        (answer,) = _answers(engine, [Visit(0, chat)])
        yield chat, answer


def attempt(engines: Engines, occasion: Occasion, alone: Mapping[Chat, Answer]) -> Trial:
    """Runs one configuration and compares every chat in it with its answer alone."""
    engine = engines.together(occasion)
    answers = _answers(engine, occasion.visits)
    chats = [visit.chat for visit in occasion.visits]
    found = [(chat, first_difference(alone[chat], answer)) for chat, answer in zip(chats, answers, strict=True)]
    return Trial(
        occasion.configuration,
        chats=len(chats),
        compared_steps=sum(answer.compared_steps for answer in answers),
        given_back=engine.snapshot.given_back,
        cached_tokens=engine.snapshot.cached_tokens,
        differences=[(chat, difference) for chat, difference in found if difference],
    )


def _answers(engine: Engine, visits: list[Visit]) -> list[Answer]:
    """Steps the engine until every visitor, in order of arrival, has its answer."""
    answers = [Answer() for _ in visits]
    arrived = step = 0
    while arrived < len(visits) or not engine.idle:
        while arrived < len(visits) and visits[arrived].step <= step:
            engine.arrive(visits[arrived].chat.request(arrived))
            arrived += 1
        report = engine.step()
        for output in report.outputs if report else ():
            answers[output.request_id].take(output)
        step += all(map(_may_be_followed, visits[:arrived], answers))
    return answers


def _may_be_followed(visit: Visit, answer: Answer) -> bool:
    return answer.ending is not None or len(answer.steps) >= visit.first
