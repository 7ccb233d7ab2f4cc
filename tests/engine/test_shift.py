"""Chats that outgrow their context, through the engine: an answer depends on nothing but the chat's own tokens."""

import re
from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec import structs

from parkway.backends.cpu.library import best_isa
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.errors import BadSetting
from parkway.plan.limits import Knobs
from parkway.plan.shift import shed
from parkway.request import Request, Vocabulary
from parkway.runner.cpu_load import CpuModel
from parkway.runner.edits import Editor
from parkway.runner.load import Model, load_model
from parkway.text.grammar import grammar_of
from tests.backends.rig import CpuPack
from tests.checkpoints import tiny_llama
from tests.engine.toy import (
    PARKS,
    STOP_ID,
    VOCAB_SIZE,
    ToyRunner,
    joined,
    make_request,
    make_toy,
    next_token,
    outputs_of,
)
from tests.hybrids import TinyHybrid

N_CTX = 192
HOWS: tuple[dict[str, Any], ...] = (
    {},
    {"n_keep": -1},
    {"n_discard": 64, "repeat_penalty": 1.3, "repeat_last_n": 300},
    {"presence_penalty": 0.5, "frequency_penalty": 0.25, "n_keep": 10},
    {"dry_multiplier": 0.8, "dry_allowed_length": 0, "dry_breakers": ((3,), (5, 6))},
    {"min_tokens": 250},
)


def crowd(**more: Any) -> list[Request]:
    return [
        make_request(index, 3 + 30 * index, **{"max_tokens": 350 + index, "ignore_eos": index != 5} | how | more)
        for index, how in enumerate(HOWS)
    ]


def expected(request: Request) -> list[int]:
    """What the toy model answers: edits see all tokens, DRY and the model as many as are left."""
    seen, history = list(request.prompt), list(request.prompt)
    while len(history) < len(request.prompt) + (request.sampling.max_tokens or 0):
        if len(seen) == N_CTX:
            gone = shed(request, N_CTX)
            del seen[gone.start : gone.stop]
        how = structs.replace(request.sampling, dry_penalty_last_n=len(seen))
        edits = Editor(structs.replace(request, sampling=how), VOCAB_SIZE).edits(history, len(history), None)
        history.append(next_token(seen, request.seed, edits))
        seen.append(history[-1])
        if history[-1] in request.stop_ids and not request.sampling.ignore_eos:
            break
    return history[len(request.prompt) :]


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("parks", PARKS.values(), ids=PARKS.keys())
def test_a_shifted_chat_answers_what_its_tokens_say(ahead: int, parks: dict[str, Any]) -> None:
    engine = make_toy(ToyRunner(ahead=ahead), n_ctx=N_CTX, shifts=True, **parks)
    outputs = outputs_of(engine, crowd())
    for request in crowd():
        tokens, _, _, reason = joined(outputs[request.id])
        assert tokens == expected(request)
        assert reason == ("length" if len(tokens) == request.sampling.max_tokens else "stop")
    counted = engine.snapshot
    assert counted.prompt_tokens == sum(len(request.prompt) for request in crowd())
    assert counted.answer_tokens == sum(len(joined(each)[0]) for each in outputs.values())
    assert (counted.parks > 0) == bool(parks)
    assert counted.pages_used == 0


def test_without_the_switch_it_ends_at_the_context() -> None:
    (request, *_) = crowd()
    tokens, _, _, reason = joined(outputs_of(make_toy(n_ctx=N_CTX), [request])[0])
    assert (tokens, reason) == (expected(request)[: N_CTX - 3], "length")


@pytest.mark.parametrize("parks", PARKS.values(), ids=PARKS.keys())
def test_a_grammar_goes_on_over_shifts(parks: dict[str, Any]) -> None:
    vocabulary = Vocabulary([bytes([32 + i]) for i in range(VOCAB_SIZE)], frozenset({STOP_ID}))
    engine = make_toy(ToyRunner(ahead=1), n_ctx=N_CTX, shifts=True, **parks)
    engine.teach(vocabulary)
    words = grammar_of("regex", "([a-e]{4},){150}", "grammar")
    outputs = outputs_of(engine, [make_request(index, 20, grammar=words, n_keep=-1) for index in range(2)])
    for each in outputs.values():
        tokens, _, _, reason = joined(each)
        said = b"".join(vocabulary.pieces[token] for token in tokens if token != STOP_ID).decode()
        assert re.fullmatch("([a-e]{4},){150}", said)
        assert reason == "stop"


SETTINGS = EngineSettings(device="cpu", ctx_size=N_CTX, parallel=3, context_shift="on", threads=1)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_model(tiny_llama(tmp_path_factory.mktemp("tiny") / "q8_0.gguf", types=("Q8_0",)), SETTINGS)


@pytest.fixture(scope="module")
def hybrid() -> CpuModel:
    return CpuModel("tiny", cast(Any, TinyHybrid(CpuPack())), "f32", best_isa(), "tiny", 0)


@pytest.fixture(params=["llama", "hybrid"])
def model(request: pytest.FixtureRequest) -> Model:
    return cast(Model, request.getfixturevalue(request.param))


def real_crowd() -> list[Request]:
    return [each for each in crowd(max_tokens=300, logprobs=1, temperature=0.8) if each.id not in (4, 5)]


@pytest.mark.parametrize("preempt", ["copy", "recompute"])
def test_a_real_model_answers_the_same_bits_alone_and_parked_among_others(model: Model, preempt: Any) -> None:
    alone = make_engine(model, SETTINGS)
    wanted = {request.id: joined(outputs_of(alone, [request])[request.id]) for request in real_crowd()}
    engine = make_engine(
        model, replace(SETTINGS, preempt=preempt), chunk_tokens=50, knobs=Knobs(park_every=40, forget=True)
    )
    outputs = outputs_of(engine, real_crowd())
    assert {i: joined(each) for i, each in outputs.items()} == wanted
    assert engine.snapshot.parks >= 6 * len(wanted)
    for request in real_crowd():
        positions = [row.position for row in wanted[request.id][1]]
        assert positions == list(range(len(request.prompt), len(request.prompt) + 300)), "they count all tokens"


def after_a_shift(model: Model, temperature: float) -> tuple[list[int], list[int]]:
    """What follows it, and what follows the tokens that it leaves as the prompt of another chat."""
    engine = make_engine(model, SETTINGS)
    asked = make_request(0, 70, max_tokens=170, ignore_eos=True, temperature=temperature, n_keep=-1)
    tokens = joined(outputs_of(engine, [asked])[0])[0]
    left = (asked.prompt + tokens)[:N_CTX]
    gone = shed(asked, N_CTX)
    del left[gone.start : gone.stop]
    behind = structs.replace(asked, id=1, prompt=left)
    return tokens[N_CTX - 70 :][:48], joined(outputs_of(engine, [behind])[1])[0][:48]


def test_what_follows_a_shift_is_what_follows_the_tokens_that_are_left(model: Model) -> None:
    shifted, asked_anew = after_a_shift(model, temperature=0)
    assert asked_anew == shifted


def test_draws_go_on_by_the_count_of_tokens(llama: Model) -> None:
    """The same tokens at the same positions, but later in a chat: other random numbers."""
    shifted, asked_anew = after_a_shift(llama, temperature=2.0)
    assert asked_anew != shifted


def test_a_context_of_one_page_is_refused(llama: Model) -> None:
    with pytest.raises(BadSetting, match="--context-shift: needs a context of more than 64 tokens, not 64"):
        make_engine(llama, replace(SETTINGS, ctx_size=64))
