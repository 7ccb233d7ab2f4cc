"""Edits through the engine: a chat's tokens depend on its own history, whoever is beside it, wherever it has been."""

import math
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.engine.engine import NO_TOKEN
from parkway.plan.limits import Knobs
from parkway.request import Request, SamplingParams
from parkway.runner.load import Model, load_model
from tests.checkpoints import tiny_llama
from tests.engine.toy import PARKS, STOP_ID, VOCAB_SIZE, ToyRunner, expected, joined, make_request, make_toy, outputs_of

HOWS: tuple[dict[str, Any], ...] = (
    {"repeat_penalty": 1.3, "repeat_last_n": 20},
    {"presence_penalty": 0.5, "frequency_penalty": 0.25},
    {"repeat_penalty": 1.1, "repeat_last_n": -1, "logit_bias": ((3, 2.0),)},
    {"logit_bias": ((5, -math.inf), (6, 1.0))},
    {"min_tokens": 30},
    {},
    {"dry_multiplier": 0.8, "dry_allowed_length": 0, "dry_breakers": ((3,), (5, 6))},
)
CHAINS: tuple[dict[str, Any], ...] = (
    {"mirostat": 1, "mirostat_tau": 2.0},
    {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.4},
    {"typical_p": 0.4},
    {"xtc_probability": 0.5, "xtc_threshold": 0.02},
    {"top_n_sigma": 1.0, "dynatemp_range": 0.6},
    {"samplers": ("top_p", "penalties", "temperature"), "top_p": 0.5, "top_k": 0},
    {"temperature": 0.0, "dry_multiplier": 2.0, "typical_p": 0.3},
)
"""For a real model: the toy has no probabilities."""


def crowd() -> list[Request]:
    return [
        make_request(index, 3 + 17 * index, **how, max_tokens=40 + 5 * index, ignore_eos=index % 2 == 0, logprobs=0)
        for index, how in enumerate(HOWS)
    ]


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("parks", PARKS.values(), ids=PARKS.keys())
@pytest.mark.parametrize("chunk_tokens", [None, 7])
def test_edits_are_those_of_a_chat_alone(ahead: int, parks: dict[str, Any], chunk_tokens: int | None) -> None:
    engine = make_toy(ToyRunner(ahead=ahead), chunk_tokens=chunk_tokens, **parks)
    outputs = outputs_of(engine, crowd())
    assert {i: joined(each) for i, each in outputs.items()} == {r.id: expected(r, 512) for r in crowd()}
    assert (engine.snapshot.parks > 0) == bool(parks)
    assert not engine._choosing._editors


def test_edits_show_in_the_toy_model() -> None:
    plain = [structs.replace(request, sampling=SamplingParams(max_tokens=40)) for request in crowd()]
    same = [expected(request, 512)[0] == expected(bare, 512)[0] for request, bare in zip(crowd(), plain, strict=True)]
    assert not any(same[:5])


def test_an_answer_does_not_end_before_it_is_long_enough() -> None:
    brief = [make_request(index, max_tokens=200) for index in range(40)]
    long = [make_request(index, max_tokens=200, min_tokens=25) for index in range(40)]
    lengths = [[len(expected(request, 512)[0]) for request in requests] for requests in (brief, long)]
    assert min(lengths[0]) < 25 < min(lengths[1])
    outputs = outputs_of(make_toy(ToyRunner(ahead=1)), long)
    assert {i: joined(each) for i, each in outputs.items()} == {r.id: expected(r, 512) for r in long}


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_cancelled_id_that_comes_again_begins_without_a_history(ahead: int) -> None:
    engine = make_toy(ToyRunner(ahead=ahead), slots=1)
    request = make_request(1, 10, **HOWS[1], max_tokens=20, ignore_eos=True)
    engine.arrive(request)
    for _ in range(6):
        engine.step()
    engine.cancel(1)
    outputs = outputs_of(engine, [request])[1]
    assert outputs[0].finish_reason == "cancelled"
    assert joined(outputs[1:]) == expected(request, 512)


NOWHERE = tuple((token, -math.inf) for token in range(VOCAB_SIZE))


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("max_tokens", [1, 9])
def test_where_no_token_is_allowed_the_request_ends_with_an_error_and_no_other_does(
    ahead: int, max_tokens: int
) -> None:
    engine = make_toy(ToyRunner(ahead=ahead))
    stuck = make_request(0, 70, logit_bias=NOWHERE, max_tokens=max_tokens, logprobs=0)
    other = make_request(1, 10, max_tokens=12, ignore_eos=True)
    outputs = outputs_of(engine, [stuck, other])
    (end,) = outputs[0]
    assert (end.token_ids, end.logprobs, end.finish_reason, end.error) == ([], [], "error", NO_TOKEN)
    assert joined(outputs[1]) == expected(other, 512)
    assert (engine.snapshot.finished, engine.snapshot.pages_used) == ({"error": 1, "length": 1}, 0)


def test_it_ends_behind_the_tokens_that_were_allowed() -> None:
    """All but its stop id are forbidden, and that one too until the answer has three tokens."""
    only = tuple((token, -math.inf) for token in range(VOCAB_SIZE) if token != STOP_ID)
    (end,) = outputs_of(make_toy(), [make_request(0, logit_bias=only, min_tokens=3)])[0]
    assert end.error == NO_TOKEN
    (end,) = outputs_of(make_toy(), [make_request(0, logit_bias=only)])[0]
    assert (end.token_ids, end.finish_reason) == ([STOP_ID], "stop")


@pytest.mark.parametrize("token", [-1, VOCAB_SIZE])
def test_a_bias_for_a_token_that_there_is_not_is_an_error(token: int) -> None:
    (end,) = outputs_of(make_toy(), [make_request(0, logit_bias=((token, 1.0),))])[0]
    assert end.error == f"a token id of logit_bias is not between 0 and {VOCAB_SIZE - 1}"


SETTINGS = EngineSettings(device="cpu", ctx_size=1024, parallel=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_model(tiny_llama(tmp_path_factory.mktemp("tiny") / "q8_0.gguf", types=("Q8_0",)), SETTINGS)


def prompt(length: int) -> list[int]:
    return [token % 200 for token in range(length)]


def real_crowd() -> list[Request]:
    """On few tokens, so that they come again."""
    how = SamplingParams(temperature=0.7, logprobs=2, ignore_eos=True, max_tokens=40, top_k=12)
    hows = [structs.replace(how, **changes) for changes in HOWS + CHAINS]
    return [
        Request(id=index, prompt=prompt(5 + 20 * index), sampling=each, seed=index) for index, each in enumerate(hows)
    ]


@pytest.mark.parametrize(("preempt", "chunk_tokens"), [("copy", None), ("recompute", 5), ("copy", 1)])
def test_a_real_model_answers_the_same_bits_alone_and_parked_among_others(
    model: Model, preempt: Any, chunk_tokens: int | None
) -> None:
    alone = make_engine(model, SETTINGS)
    wanted = {request.id: joined(outputs_of(alone, [request])[request.id]) for request in real_crowd()}
    settings = replace(SETTINGS, preempt=preempt)
    engine = make_engine(model, settings, chunk_tokens=chunk_tokens, knobs=Knobs(park_every=6, forget=True))
    outputs = outputs_of(engine, real_crowd())
    assert {i: joined(each) for i, each in outputs.items()} == wanted
    assert engine.snapshot.parks >= 6 * len(HOWS + CHAINS)
    assert (engine.snapshot.recomputes > 0) == (preempt == "recompute")


def test_each_of_them_changes_what_the_real_model_answers(model: Model) -> None:
    engine = make_engine(model, SETTINGS)
    for request in real_crowd():
        if request.id in (4, 5):  # ends of answers are ignored; nothing is asked for
            continue
        bare = SamplingParams(temperature=0.7, logprobs=2, ignore_eos=True, max_tokens=40, top_k=12)
        answers = [
            joined(outputs_of(engine, [structs.replace(request, sampling=how)])[request.id])[0]
            for how in (request.sampling, bare)
        ]
        assert answers[0] != answers[1], request.sampling
