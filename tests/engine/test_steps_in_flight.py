"""The engine with steps in flight: the same answers, a step later, and nobody waits for a step that does not come."""

import random
from collections import defaultdict
from typing import Any

import pytest

from parkway.engine.engine import Engine
from parkway.engine.events import Arrive, Event, run
from parkway.plan.limits import Knobs
from parkway.report import Report
from parkway.request import Output, Request
from tests.engine.toy import ToyRunner, expected, joined, make_request, make_toy


def tokens(report: Report | None) -> list[list[int]]:
    assert report is not None
    return [output.token_ids for output in report.outputs]


def test_a_token_is_reported_when_its_step_has_landed() -> None:
    request = make_request(1, max_tokens=2, ignore_eos=True)
    first, second = expected(request, 512)[0]
    engine = make_toy(ToyRunner(ahead=1))
    engine.arrive(request)
    assert tokens(engine.step()) == []
    assert tokens(engine.step()) == [[first]]
    last = engine.step()
    assert tokens(last) == [[second]]
    assert last is not None
    assert last.outputs[0].finish_reason == "length"
    assert (last.snapshot.steps, last.snapshot.pages_used, engine.idle) == (2, 0, True)
    assert engine.step() is None


def stopping_request() -> Request:
    """Its second token is its stop id."""
    request = make_request(1, ignore_eos=True)
    second = expected(request, 512)[0][1]
    return Request(id=1, prompt=request.prompt, sampling=make_request(1).sampling, seed=1, stop_ids=frozenset({second}))


def test_what_was_computed_behind_a_stop_id_is_never_told() -> None:
    engine = make_toy(ToyRunner(ahead=1))
    engine.arrive(stopping_request())
    reports = [engine.step() for _ in range(3)]
    last = reports[-1]
    assert last is not None
    assert [output.finish_reason for output in last.outputs] == ["stop"]
    assert (last.snapshot.steps, last.snapshot.running, last.snapshot.pages_used) == (3, 0, 0)
    assert not engine.idle, "a step is in flight"
    assert engine.step() is None
    assert engine.idle


@pytest.mark.parametrize("ahead", range(3))
def test_a_cancelled_id_may_come_again_while_its_chat_is_in_flight(ahead: int) -> None:
    engine = make_toy(ToyRunner(ahead=ahead), slots=1)
    again = make_request(1, max_tokens=7, ignore_eos=True)
    engine.arrive(again)
    for _ in range(3):
        engine.step()
    engine.cancel(1)
    engine.arrive(again)
    outputs = []
    while not engine.idle:
        report = engine.step()
        outputs += report.outputs if report else []
    assert outputs[0].finish_reason == "cancelled"
    assert joined(outputs[1:]) == expected(again, 512)


def test_a_slot_is_free_for_the_next_step_while_its_chat_is_in_flight() -> None:
    engine = make_toy(ToyRunner(ahead=1), slots=1)
    engine.arrive(make_request(1, ignore_eos=True))
    other = make_request(2, max_tokens=1)
    engine.arrive(other)
    engine.step()
    engine.cancel(1)
    reports = [engine.step() for _ in range(2)]
    assert [[(o.request_id, o.finish_reason) for o in r.outputs] for r in reports if r] == [
        [(1, "cancelled")],
        [(2, "length")],
    ]


class ScriptedInbox:
    """Hands out one event whenever the engine is idle, then closes. `takes` counts the steps between."""

    def __init__(self, engine: Engine, events: list[Event]) -> None:
        self.takes = 0
        self._engine = engine
        self._events = events

    def take(self) -> list[Event]:
        assert not self._engine.idle
        self.takes += 1
        return []

    def wait(self, seconds: float | None = None) -> list[Event] | None:
        assert self._engine.idle
        return [self._events.pop(0)] if self._events else None


@pytest.mark.parametrize("ahead", range(3))
def test_the_loop_sleeps_when_everything_has_been_told(ahead: int) -> None:
    """One turn a step, and one that waits for all that is left in flight; the first turn wakes with the event."""
    engine = make_toy(ToyRunner(ahead=ahead))
    requests = [make_request(i, max_tokens=5, ignore_eos=True) for i in range(3)]
    inbox = ScriptedInbox(engine, [Arrive(request) for request in requests])
    reports: list[Report] = []
    run(engine, inbox, reports.append)
    outputs = [output for report in reports for output in report.outputs]
    for request in requests:
        assert joined(output for output in outputs if output.request_id == request.id) == expected(request, 512)
    assert inbox.takes == 3 * (4 + (ahead > 0))
    assert reports[-1].snapshot.steps == 3 * 5


def traffic(seed: int) -> list[tuple[int, Request]]:
    """Requests with the steps at which they arrive."""
    draw = random.Random(seed)
    return [
        (
            draw.randrange(300),
            make_request(
                i,
                draw.randint(1, 150),
                max_tokens=draw.choice([0, 1, 2, 5, 80]),
                logprobs=draw.choice([None, 0]),
                prompt_logprobs=draw.choice([None, 0]),
                ignore_eos=draw.choice([True, False]),
            ),
        )
        for i in range(24)
    ]


def answers(engine: Engine, visits: list[tuple[int, Request]]) -> dict[int, list[Output]]:
    outputs: dict[int, list[Output]] = defaultdict(list)
    step = 0
    while visits or not engine.idle:
        for visit in [visit for visit in visits if visit[0] <= step]:
            engine.arrive(visit[1])
            visits.remove(visit)
        report = engine.step()
        for output in report.outputs if report else []:
            outputs[output.request_id].append(output)
        step += 1
    return outputs


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "limits", [{}, {"pages": 8, "batch_tokens": 24}, {"pages": 9, "slots": 8, "knobs": Knobs(park_every=2)}], ids=str
)
def test_answers_do_not_depend_on_the_steps_in_flight(limits: dict[str, Any], seed: int) -> None:
    engines = [make_toy(ToyRunner(ahead=ahead), **limits) for ahead in range(3)]
    alone, *late = [answers(engine, traffic(seed)) for engine in engines]
    for outputs in late:
        assert {i: joined(outputs[i]) for i in outputs} == {i: joined(alone[i]) for i in alone}
    now = [engine.snapshot for engine in engines]
    assert len({(s.prompt_tokens, s.answer_tokens, str(sorted(s.finished.items()))) for s in now}) == 1
