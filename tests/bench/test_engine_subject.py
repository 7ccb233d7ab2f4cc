"""The engine as a subject, on a model without arithmetic: how many tokens it counts, and that nothing stays behind."""

import pytest

from parkway.bench.engine_subject import EngineSubject
from parkway.bench.figures import ANSWER_TOKENS, PROMPT_TOKENS
from parkway.engine.engine import Engine
from tests.engine.toy import ToyRunner, make_toy


@pytest.fixture(params=[0, 1], ids=["at once", "one ahead"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return make_toy(ToyRunner(ahead=request.param), slots=4, pages=24)


def test_a_prefill_computes_each_prompt_once(engine: Engine) -> None:
    assert EngineSubject(engine).prefill(200, 0.0).tokens == 200
    assert engine.snapshot.prompt_tokens == 200
    assert engine.snapshot.answer_tokens == 1
    assert engine.idle


def test_streams_are_ready_when_all_are_past_their_prompts(engine: Engine) -> None:
    EngineSubject(engine).ready(4, 1)
    assert engine.snapshot.prompt_tokens == 4 * PROMPT_TOKENS
    assert engine.snapshot.running == 4


def test_a_decode_window_counts_what_the_engine_gave(engine: Engine) -> None:
    subject = EngineSubject(engine)
    subject.ready(4, 1)
    before = engine.snapshot.answer_tokens
    timed = subject.decode(0.0)
    assert timed.tokens == 4
    assert engine.snapshot.answer_tokens - before == 4


def test_a_window_ends_before_a_stream_does(engine: Engine) -> None:
    subject = EngineSubject(engine)
    subject.ready(4, 1)
    timed = subject.decode(600.0)
    assert engine.snapshot.running == 4
    assert timed.tokens % 4 == 0
    assert timed.tokens >= 4 * ANSWER_TOKENS


def test_streams_go_on_while_they_have_enough_left(engine: Engine) -> None:
    subject = EngineSubject(engine)
    subject.ready(2, 1)
    subject.decode(0.0)
    subject.ready(2, ANSWER_TOKENS - 1)
    assert engine.snapshot.prompt_tokens == 2 * PROMPT_TOKENS
    subject.decode(600.0)
    subject.ready(2, 1)
    assert engine.snapshot.prompt_tokens == 4 * PROMPT_TOKENS
    assert engine.snapshot.finished == {"cancelled": 2}


def test_other_streams_begin_anew(engine: Engine) -> None:
    subject = EngineSubject(engine)
    subject.ready(4, 1)
    subject.ready(1, 1)
    assert engine.snapshot.running == 1
    assert subject.decode(0.0).tokens == 1
    subject.prefill(10, 0.0)
    assert engine.idle
    assert engine.snapshot.pages_used == 0
