"""The engine over the real planner and a toy model: the same answers alone and in a crowd, and no request breaks it."""

import random
from collections import defaultdict
from typing import Any

import pytest

from parkway.engine.engine import Engine
from parkway.plan.limits import Knobs
from parkway.request import Output, Request
from tests.engine.toy import STOP_ID, BrokenRunner, ToyRunner, expected, joined, make_request, make_toy


def drain(engine: Engine) -> dict[int, list[Output]]:
    outputs: dict[int, list[Output]] = defaultdict(list)
    while not engine.idle:
        report = engine.step()
        for output in report.outputs if report else []:
            outputs[output.request_id].append(output)
    return outputs


def crowd(count: int, seed: int) -> list[Request]:
    draw = random.Random(seed)
    return [
        make_request(
            i,
            draw.randint(1, 200),
            max_tokens=draw.choice([0, 1, 5, 80, 150]),
            logprobs=draw.choice([None, 0]),
            prompt_logprobs=draw.choice([None, 0]),
            ignore_eos=draw.choice([True, False]),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("ahead", range(3))
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"slots": 1},
        {"pages": 8},
        {"pages": 8, "slots": 16, "batch_tokens": 16, "logit_rows": 16},
        {"slots": 16, "batch_tokens": 256},
        {"chunk_tokens": 1},
        {"chunk_tokens": 7, "knobs": Knobs(park_every=3, forget=True)},
        {"pages": 8, "slots": 8, "knobs": Knobs(park_every=1)},
        {"pages": 8, "slots": 8, "host_pages": 64},
        {"pages": 8, "slots": 8, "host_pages": 64, "knobs": Knobs(park_every=3, forget=True)},
        {"slots": 8, "host_pages": 9, "knobs": Knobs(park_every=5), "prefix_cache": False},
    ],
    ids=str,
)
def test_a_crowd_gets_the_answers_of_each_alone(limits: dict[str, Any], seed: int, ahead: int) -> None:
    requests = crowd(24, seed)
    engine = make_toy(ToyRunner(ahead=ahead), **limits)
    for request in requests:
        engine.arrive(request)
    outputs = drain(engine)
    assert {i: joined(outputs[i]) for i in outputs} == {r.id: expected(r, 512) for r in requests}
    assert engine.snapshot.pages_used == 0


def test_lost_kv_shows() -> None:
    class Forgetful(ToyRunner):
        def _compute(self, chunk, edits):  # type: ignore[no-untyped-def]
            if chunk.start == 40:
                self.kv[chunk.pages[0], 3] = (0, 3)
            return super()._compute(chunk, edits)

    request = make_request(1, max_tokens=50, ignore_eos=True)
    engine = make_toy(Forgetful())
    engine.arrive(request)
    assert joined(drain(engine)[1]) != expected(request, 512)


def test_an_answer_ends_at_its_stop_id_and_at_the_context() -> None:
    engine = make_toy(n_ctx=128, pages=2)
    stops, runs = (make_request(i, 20, ignore_eos=ignore) for i, ignore in ((1, False), (2, True)))
    engine.arrive(stops)
    engine.arrive(runs)
    outputs = drain(engine)
    tokens, _, _, reason = joined(outputs[1])
    assert (tokens, reason) == (expected(stops, 128)[0], expected(stops, 128)[3])
    assert (len(outputs[2]), joined(outputs[2])[3]) == (108, "length")


def test_some_toy_answer_stops() -> None:
    assert any(expected(make_request(i), 512)[3] == "stop" for i in range(10)), "or no test sees a stop"


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ([], "empty"),
        ([1] * 512, "leaves no room"),
        ([1, -1], "not between 0 and 88"),
        ([1, STOP_ID + 1], "not between 0 and 88"),
        ([2**63], "not between 0 and 88"),
    ],
)
def test_a_request_that_cannot_be_computed_ends_with_an_error(prompt: list[int], error: str) -> None:
    engine = make_toy()
    good = make_request(1, max_tokens=5)
    engine.arrive(good)
    engine.arrive(Request(id=2, prompt=prompt, sampling=good.sampling, seed=0))
    outputs = drain(engine)
    assert [output.finish_reason for output in outputs[2]] == ["error"]
    assert error in (outputs[2][0].error or "")
    assert joined(outputs[1]) == expected(good, 512)
    assert engine.snapshot.finished == {"error": 1, "length": 1}


def test_the_longest_prompt_that_fits_gets_its_one_token() -> None:
    engine = make_toy()
    request = make_request(1, 511)
    engine.arrive(request)
    assert joined(drain(engine)[1]) == expected(request, 512)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_two_requests_with_one_id_end_both(steps: int) -> None:
    engine = make_toy()
    engine.arrive(make_request(1, ignore_eos=True))
    for _ in range(steps):
        engine.step()
    engine.arrive(make_request(1))
    outputs = drain(engine)
    assert [output.finish_reason for output in outputs[1]] == ["error"]
    engine.arrive(make_request(1, max_tokens=3))
    assert joined(drain(engine)[1]) == expected(make_request(1, max_tokens=3), 512)


@pytest.mark.parametrize("ahead", range(3))
@pytest.mark.parametrize("seed", range(7))
def test_cancel_in_every_state(seed: int, ahead: int) -> None:
    """Waiting, in prefill, decoding and given back (the pool is tiny): the others' answers stay what they are."""
    draw = random.Random(seed)
    requests = [make_request(i, draw.randint(1, 100), max_tokens=150, ignore_eos=True) for i in range(20)]
    engine = make_toy(ToyRunner(ahead=ahead), pages=8, slots=6, batch_tokens=16, logit_rows=16)
    outputs: dict[int, list[Output]] = defaultdict(list)
    cancelled = set()
    for request in requests:
        engine.arrive(request)
    while not engine.idle:
        if draw.random() < 0.02:
            request_id = draw.randrange(20)
            cancelled.add(request_id)
            engine.cancel(request_id)
        report = engine.step()
        for output in report.outputs if report else []:
            outputs[output.request_id].append(output)
    reasons = {i: outputs[i][-1].finish_reason for i in outputs}
    assert len(outputs) == 20
    assert {i for i in reasons if reasons[i] == "cancelled"} <= cancelled
    for request in requests:
        tokens, _, _, reason = joined(outputs[request.id])
        want = expected(request, 512)
        assert (tokens, reason) == (want[0][: len(tokens)], "cancelled") or joined(outputs[request.id]) == want
    assert engine.snapshot.parks, "the pool was not tiny enough"
    assert engine.snapshot.pages_used == 0


def test_a_cancel_frees_the_slot_for_the_next_step() -> None:
    engine = make_toy(slots=1)
    engine.arrive(make_request(1, ignore_eos=True))
    engine.arrive(make_request(2, max_tokens=1))
    engine.step()
    engine.cancel(1)
    report = engine.step()
    assert report is not None
    assert [(output.request_id, output.finish_reason) for output in report.outputs] == [(1, "cancelled"), (2, "length")]


def test_a_cancel_that_comes_too_late_says_nothing() -> None:
    engine = make_toy()
    engine.cancel(5)
    assert engine.idle
    assert engine.step() is None


def test_the_snapshot_counts() -> None:
    engine = make_toy(slots=1)
    for request in (make_request(1, 70, max_tokens=3, ignore_eos=True), make_request(2, 5, max_tokens=0)):
        engine.arrive(request)
    report = engine.step()
    assert report is not None
    now = report.snapshot
    assert (now.running, now.waiting, now.pages_used, now.pages_total) == (1, 1, 1, 16)
    assert (now.steps, now.prompt_tokens, now.answer_tokens, now.finished) == (1, 0, 0, {})
    drain(engine)
    now = engine.snapshot
    assert (now.running, now.waiting, now.pages_used) == (0, 0, 0)
    assert (now.steps, now.prompt_tokens, now.answer_tokens, now.finished) == (5, 75, 3, {"length": 2})


def test_computing_again_counts_no_token_twice() -> None:
    engine = make_toy(knobs=Knobs(park_every=1, forget=True))
    engine.arrive(make_request(1, 70, max_tokens=6, ignore_eos=True))
    drain(engine)
    now = engine.snapshot
    assert (now.prompt_tokens, now.answer_tokens) == (70, 6)
    assert now.parks


def test_a_failing_runner_is_not_hidden() -> None:
    engine = make_toy(BrokenRunner())
    engine.arrive(make_request(1))
    with pytest.raises(RuntimeError, match="planted"):
        drain(engine)
