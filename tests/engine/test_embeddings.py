"""Embeddings through the engine over a toy model: each the same alone and in a crowd, parked or not."""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from parkway.engine.engine import Engine
from parkway.plan.limits import Knobs
from parkway.request import Output, Request
from tests.engine.toy import ToyRunner, expected, hidden, joined, make_request, make_toy


def embedding_of(request: Request) -> bytes:
    """By the definition, without an engine."""
    prompt = request.prompt
    if request.sampling.embed is None:
        return b""
    ends = range(1, len(prompt) + 1) if request.sampling.embed == "mean" else [len(prompt)]
    return mean_of([hidden(prompt[:end]) for end in ends])


def mean_of(rows: Iterable[tuple[float, float]]) -> bytes:
    rounded = np.array([*rows], np.float32).astype(np.float64)
    sums = [0.0, 0.0]
    for row in rounded:
        sums = [sum_ + number for sum_, number in zip(sums, row.tolist(), strict=True)]
    return np.array([each / len(rounded) for each in sums], np.float32).tobytes()


def crowd(count: int, seed: int) -> list[Request]:
    draw = random.Random(seed)
    return [
        make_request(i, draw.randint(1, 300), max_tokens=0, embed=draw.choice(["last", "mean"]))
        if draw.randint(0, 2)
        else make_request(i, draw.randint(1, 200), max_tokens=draw.choice([0, 60, 150]), prompt_logprobs=0)
        for i in range(count)
    ]


def drain(engine: Engine) -> dict[int, list[Output]]:
    outputs: dict[int, list[Output]] = defaultdict(list)
    while not engine.idle:
        report = engine.step()
        for output in report.outputs if report else []:
            outputs[output.request_id].append(output)
    return outputs


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"slots": 1},
        {"pages": 8, "slots": 16, "batch_tokens": 16, "logit_rows": 16},
        {"chunk_tokens": 1},
        {"pages": 8, "slots": 8, "knobs": Knobs(park_every=1)},
        {"pages": 8, "slots": 8, "host_pages": 64, "knobs": Knobs(park_every=3, forget=True)},
    ],
    ids=str,
)
def test_a_crowd_gets_the_embeddings_of_each_alone(limits: dict[str, Any], ahead: int) -> None:
    requests = crowd(24, seed=ahead)
    engine = make_toy(ToyRunner(ahead=ahead), **limits)
    for request in requests:
        engine.arrive(request)
    outputs = drain(engine)
    assert {i: outputs[i][-1].embedding for i in outputs} == {each.id: embedding_of(each) for each in requests}
    assert all(not output.embedding for each in outputs.values() for output in each[:-1])
    assert {i: joined(outputs[i]) for i in outputs} == {each.id: expected(each, 512) for each in requests}


@pytest.mark.parametrize("host_pages", [0, 64])
def test_a_chat_that_is_parked_within_its_prompt_adds_no_row_twice(host_pages: int) -> None:
    growing = [make_request(0, 200, ignore_eos=True), make_request(1, 150, ignore_eos=True)]
    request = make_request(2, 190, max_tokens=0, embed="mean")
    engine = make_toy(pages=10, chunk_tokens=1, host_pages=host_pages, knobs=Knobs(victim="youngest"))
    for each in (*growing, request):
        engine.arrive(each)
    last = drain(engine)[2][-1]
    assert (last.preempt.parks, last.preempt.recomputes) == (1, 0 if host_pages else 1)
    assert last.embedding == embedding_of(request)


def test_the_order_of_the_rows_shows() -> None:
    prompt = make_request(1, 198).prompt
    rows = [hidden(prompt[:end]) for end in range(1, 199)]
    assert mean_of(rows) != mean_of(rows[:-1])
    assert mean_of(rows) != mean_of(rows[::-1])
    halves = [np.array(half).sum(axis=0) for half in (rows[:100], rows[100:])]
    assert (sum(halves) / 198).astype(np.float32).tobytes() != mean_of(rows)


def test_an_embedding_of_the_last_token_begins_with_pages_that_are_there_and_a_mean_with_none() -> None:
    engine = make_toy()
    found = []
    for embed in ("last", "last", "mean"):
        engine.arrive(request := make_request(3, 200, max_tokens=0, embed=embed))
        [output] = [each for each in drain(engine)[3] if each.finish_reason]
        found.append((output.finish_reason, output.cached_tokens, output.embedding == embedding_of(request)))
    assert found == [("length", 0, True), ("length", 192, True), ("length", 0, True)]


def test_nothing_is_left_of_one_that_was_cancelled() -> None:
    engine = make_toy()
    engine.arrive(request := make_request(1, 300, max_tokens=0, embed="mean"))
    engine.step()
    engine.cancel(1)
    assert drain(engine)[1][-1].embedding == b""
    engine.arrive(request)
    assert drain(engine)[1][-1].embedding == embedding_of(request)
    assert engine._embeddings._sums == {}
