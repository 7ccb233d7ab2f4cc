"""The library over the toy engine: text in, text out, stop strings, seeds, and errors that name the field."""

import importlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parkway
from parkway import LLM, SamplingParams
from parkway.config import EngineSettings
from parkway.engine.engine import Engine
from parkway.errors import BadRequest, ContextExceeded, EngineDied
from parkway.request import Preempt, Request
from parkway.text import ModelText
from tests.engine.toy import STOP_ID, BrokenRunner, ToyRunner, expected, hidden, make_toy

BOS_ID = STOP_ID - 1
LETTERS = [chr(33 + i) for i in range(BOS_ID)]
METADATA = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": [*LETTERS, "<s>", "<|im_end|>"],
    "tokenizer.ggml.token_type": [1] * BOS_ID + [3, 3],
    "tokenizer.ggml.merges": [],
    "tokenizer.ggml.bos_token_id": BOS_ID,
    "tokenizer.ggml.eos_token_id": STOP_ID,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}!",
}


@pytest.fixture
def runner() -> ToyRunner:
    return ToyRunner()


@pytest.fixture
def llm(runner: ToyRunner, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    def build(path: Path, settings: EngineSettings) -> Engine:
        return make_toy(runner, slots=settings.parallel)

    module: Any = importlib.import_module("parkway.llm")
    monkeypatch.setattr(module, "build_engine", build)
    monkeypatch.setattr(module.ModelText, "from_path", lambda path: ModelText.from_metadata(METADATA, "toy"))
    with LLM("toy.gguf", parallel=2) as llm:
        yield llm


def answer(ids: list[int], seed: int, **sampling: Any) -> list[int]:
    params = SamplingParams(**sampling)
    return expected(Request(id=0, prompt=ids, sampling=params, seed=seed, stop_ids=frozenset({STOP_ID})), 512)[0]


def text(ids: list[int]) -> str:
    return "".join(LETTERS[i] for i in ids if i < BOS_ID)


def test_many_prompts_get_the_answers_of_each_alone_in_order(llm: LLM) -> None:
    params = SamplingParams(max_tokens=30, seed=5, logprobs=0, prompt_logprobs=0)
    prompts: list[str | list[int]] = [[i, 7] if i % 2 else LETTERS[i] * 3 for i in range(20)]
    ids = [[i, 7] if i % 2 else [BOS_ID, i, i, i] for i in range(20)]
    together = llm.generate(prompts, params)
    assert [each.token_ids for each in together] == [answer(each, 5, max_tokens=30) for each in ids]
    assert [each.text for each in together] == [text(each.token_ids) for each in together]
    assert [len(each.logprobs) for each in together] == [len(each.token_ids) for each in together]
    assert [len(each.prompt_logprobs) for each in together] == [len(each) - 1 for each in ids]
    assert {each.finish_reason for each in together} == {"stop", "length"}
    assert [llm.generate(prompt, params)[0] for prompt in prompts] == together


def test_a_drawn_seed_is_told_and_brings_the_answer_again(llm: LLM) -> None:
    first, second = (llm.generate("abc", SamplingParams(max_tokens=20))[0] for _ in range(2))
    assert first.seed != second.seed
    again = llm.generate("abc", SamplingParams(max_tokens=20, seed=first.seed))[0]
    assert again == first


def test_a_stop_string_ends_the_answer_and_frees_its_slot(llm: LLM) -> None:
    whole = llm.generate([1, 2, 3], SamplingParams(seed=1, ignore_eos=True, max_tokens=60, logprobs=0))[0]
    stop = whole.text[20:23]
    cut = llm.generate([1, 2, 3], SamplingParams(seed=1, ignore_eos=True, logprobs=0, stop=(stop,)))[0]
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.token_ids == whole.token_ids[: len(cut.token_ids)]
    assert text(cut.token_ids) == cut.text + stop
    assert cut.logprobs == whole.logprobs[: len(cut.token_ids)]
    assert cut.finish_reason == "stop"
    assert len(llm.generate([[1], [2]], SamplingParams(max_tokens=1))) == 2


def test_answers_tell_how_often_they_were_parked(llm: LLM) -> None:
    """Two chats of 443 tokens fit into 1024, four do not. One that a stop string ends is told by its notices."""
    told: dict[str, Any] = {"seed": 1, "ignore_eos": True, "max_tokens": 440}
    (alone,) = llm.generate([1, 2, 3], SamplingParams(**told))
    assert alone.preempt == Preempt()
    prompts: list[str | list[int]] = [[each, 2, 3] for each in range(4)]
    with LLM("toy.gguf", parallel=4) as crowd:
        whole = crowd.generate(prompts, SamplingParams(**told))
        stop = next(each.text[-40:-36] for each in whole if each.preempt.parks)
        cut = crowd.generate(prompts, SamplingParams(**told, stop=(stop,)))
    assert any(each.text != before.text for each, before in zip(cut, whole, strict=True))
    for answers in (whole, cut):
        assert any(each.preempt.parks for each in answers)
        assert all(each.preempt == Preempt() for each in answers if not each.preempt.parks)


def test_chat_renders_the_template(llm: LLM) -> None:
    params = SamplingParams(seed=3, max_tokens=10)
    completion = llm.chat([{"role": "user", "content": "abc"}], params)
    assert completion == llm.generate("abc!", params)[0]


def test_a_prompt_that_was_computed_before_is_found_and_changes_nothing(llm: LLM) -> None:
    prompt, params = [i % 50 for i in range(200)], SamplingParams(max_tokens=70, seed=2, logprobs=0, ignore_eos=True)
    cold, found = (llm.generate(prompt, params)[0] for _ in range(2))
    without = llm.generate(prompt, SamplingParams(max_tokens=70, seed=2, ignore_eos=True, cache_prompt=False))[0]
    longer = llm.generate([*prompt, *cold.token_ids, 7], params)[0]
    assert [each.cached_tokens for each in (cold, found, without, longer)] == [0, 192, 0, 256]
    assert found == cold
    assert without.token_ids == cold.token_ids == answer(prompt, 2, max_tokens=70, ignore_eos=True)
    assert longer.token_ids == answer([*prompt, *cold.token_ids, 7], 2, max_tokens=70, ignore_eos=True)


@pytest.mark.parametrize("pooling", [None, "last", "mean"])
def test_embeddings_of_texts_and_ids_in_their_order(llm: LLM, pooling: Any) -> None:
    prompts: list[str | list[int]] = [[i, 7] if i % 2 else LETTERS[i] * 3 for i in range(5)]
    found = llm.embed(prompts, pooling)
    rows = [[BOS_ID, i, i, i] if i % 2 == 0 else [i, 7] for i in range(5)]
    for ids, vector in zip(rows, found, strict=True):
        states = [hidden(ids[:end]) for end in range(1 if pooling == "mean" else len(ids), len(ids) + 1)]
        mean = (np.array(states, np.float32).astype(np.float64).sum(axis=0) / len(states)).astype(np.float32)
        assert vector.tolist() == pytest.approx((mean / np.linalg.norm(mean.astype(float))).tolist(), rel=1e-6)
    assert np.array_equal(llm.embed(prompts[3], pooling), found[3:4])
    assert (str(found.dtype), found.shape) == ("float32", (5, 2))


def test_embeddings_of_fewer_dimensions(llm: LLM) -> None:
    assert abs(llm.embed("abc", dimensions=1)).tolist() == [[1]]
    for dimensions in (0, 3):
        with pytest.raises(BadRequest, match=f"dimensions is {dimensions}, but .* 2"):
            llm.embed("abc", dimensions=dimensions)
    assert llm.embed([]).shape == (0, 2)


def test_a_pooling_that_there_is_not_must_be_named(llm: LLM) -> None:
    llm._text = replace(llm._text, pooling=None)
    with pytest.raises(BadRequest, match="pooling"):
        llm.embed("abc")
    assert len(llm.embed("abc", "mean")) == 1


def test_no_prompts_no_answers(llm: LLM) -> None:
    assert llm.generate([]) == []


@pytest.mark.parametrize(
    ("prompts", "error", "message"),
    [
        ([[1], []], BadRequest, "prompt is empty"),
        ([1, 89], BadRequest, "between 0 and 88"),
        ([-1], BadRequest, "between 0 and 88"),
        ([1] * 512, ContextExceeded, r"512 tokens\) exceeds .* \(512 tokens"),
    ],
)
def test_a_bad_prompt_is_refused(llm: LLM, prompts: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        llm.generate(prompts)


@pytest.mark.parametrize("runner", [BrokenRunner()])
def test_a_broken_engine_is_an_exception(llm: LLM) -> None:
    for _ in range(2):
        with pytest.raises(EngineDied, match="planted"):
            llm.generate([[1], [2], [3]], SamplingParams(ignore_eos=True))


@pytest.mark.parametrize("runner", [ToyRunner(seconds=0.005)])
def test_close_wakes_who_waits(llm: LLM) -> None:
    raised = threading.Event()

    def work() -> None:
        with pytest.raises(EngineDied, match="closed"):
            llm.generate([1], SamplingParams(ignore_eos=True))
        raised.set()

    thread = threading.Thread(target=work)
    thread.start()
    llm.close()
    thread.join()
    assert raised.is_set()


def test_the_package_names_what_it_has() -> None:
    assert all(getattr(parkway, name) for name in parkway.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        parkway.Nothing  # noqa: B018
