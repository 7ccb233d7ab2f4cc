"""Runs chats through engines: each alone for what its answer should be, then all of one configuration together."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.engine.engine import Engine
from parkway.plan.step import PAGE_TOKENS
from parkway.runner.load import Model
from parkway.verify.answers import Answer, Difference, first_difference
from parkway.verify.configurations import Configuration
from parkway.verify.traffic import Chat, Occasion, Visit


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one configuration. `given_back` counts how often a chat gave its pages back."""

    configuration: Configuration
    chats: int
    compared_steps: int
    given_back: int
    differences: list[tuple[Chat, Difference]]


def answers_alone(model: Model, chats: Iterable[Chat]) -> Iterable[tuple[Chat, Answer]]:
    """Each chat by itself, in a plain engine: one slot, one thread, its prompt in one chunk, pages never given back."""
    chats = list(chats)
    longest = max(chat.pages for chat in chats) * PAGE_TOKENS
    engine = make_engine(model, EngineSettings(ctx_size=longest, batch_size=longest, parallel=1, threads=1))
    for chat in chats:
        (answer,) = _answers(engine, [Visit(0, chat)])
        yield chat, answer


def attempt(model: Model, occasion: Occasion, alone: dict[Chat, Answer]) -> Trial:
    """Runs one configuration and compares every chat in it with its answer alone."""
    engine = _engine(model, occasion)
    answers = _answers(engine, occasion.visits)
    chats = [visit.chat for visit in occasion.visits]
    found = [(chat, first_difference(alone[chat], answer)) for chat, answer in zip(chats, answers, strict=True)]
    return Trial(
        occasion.configuration,
        chats=len(chats),
        compared_steps=sum(answer.compared_steps for answer in answers),
        given_back=engine.snapshot.given_back,
        differences=[(chat, difference) for chat, difference in found if difference],
    )


def _engine(model: Model, occasion: Occasion) -> Engine:
    configuration = occasion.configuration
    # Room for one whole chunk beside decoding chats: other prompts' chunks come out shorter.
    chunk_rows = configuration.chunk_tokens or sum(visit.chat.pages for visit in occasion.visits) * PAGE_TOKENS
    settings = EngineSettings(
        ctx_size=occasion.pages * PAGE_TOKENS,
        parallel=configuration.slots,
        batch_size=configuration.slots + chunk_rows,
        threads=configuration.threads,
    )
    return make_engine(
        model, settings, chunk_tokens=configuration.chunk_tokens, give_back_every=occasion.give_back_every
    )


def _answers(engine: Engine, visits: list[Visit]) -> list[Answer]:
    """Steps the engine until every visitor, in order of arrival, has its answer."""
    answers = [Answer() for _ in visits]
    arrived = 0
    for step in count():
        while arrived < len(visits) and visits[arrived].step <= step:
            engine.arrive(visits[arrived].chat.request(arrived))
            arrived += 1
        report = engine.step()
        for output in report.outputs if report else ():
            answers[output.request_id].take(output)
        if arrived == len(visits) and engine.idle:
            break
    return answers
