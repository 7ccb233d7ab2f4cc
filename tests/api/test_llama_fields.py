"""The fields of /completion: honoured, without effect, or refused by name in llama-server's shape."""

import json
import math
from typing import Any

import pytest

from parkway.api.llama_bodies import DEFAULTS
from parkway.config import RequestDefaults
from parkway.request import SamplingParams
from parkway.runner.chain import ORDER
from tests.api.conftest import Connect
from tests.api.fake import EOS, N_CTX, FakeDoor

URL = "/completion"
LLAMA: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}


ONLY_TOP_K: dict[str, Any] = {"temperature": 1.0, "top_k": 4, "top_p": 1.0, "min_p": 0.0}
ONLY_DRY = ONLY_TOP_K | {"top_k": 0, "dry_multiplier": 1, "dry_breakers": ((120,),)}


async def asked_for(within: Connect, **fields: Any) -> SamplingParams:
    async with within(door := FakeDoor("a")) as http:
        answer = await http.post(URL, json={"prompt": "Hi"} | fields)
    assert answer.status_code == 200, answer.text
    return door.asked[0].sampling


@pytest.mark.parametrize(
    ("fields", "params"),
    [
        ({}, {}),
        ({"n_predict": 5}, {"max_tokens": 5}),
        ({"n_predict": -2, "max_tokens": 5}, {}),
        ({"max_completion_tokens": 6, "max_tokens": 5}, {"max_tokens": 6}),
        ({"temperature": 0.0, "top_k": 0, "top_p": 1.0}, {"temperature": 0.0, "top_k": 0, "top_p": 1.0}),
        ({"temperature": -1.0, "top_k": -1}, {"temperature": 0.0, "top_k": 0}),
        ({"seed": 7}, {"seed": 7}),
        ({"seed": -1}, {}),
        ({"seed": 2**32 - 1}, {}),
        ({"repeat_penalty": 1.1, "repeat_last_n": -1}, {"repeat_penalty": 1.1, "repeat_last_n": -1}),
        ({"repetition_penalty": 1.2}, {"repeat_penalty": 1.2, "repeat_last_n": -1}),
        ({"presence_penalty": 0.5}, {"presence_penalty": 0.5}),
        ({"frequency_penalty": 0.5}, {"frequency_penalty": 0.5}),
        ({"ignore_eos": True}, {"ignore_eos": True}),
        ({"cache_prompt": False}, {"cache_prompt": False}),
        ({"n_probs": 3}, {"logprobs": 3}),
        ({"stop": ["x", ""]}, {"stop": ("x",)}),
        ({"logit_bias": [[97, 1.5], [98, False]]}, {"logit_bias": ((97, 1.5), (98, -math.inf))}),
        ({"logit_bias": [["ab", -0.5]]}, {"logit_bias": ((97, -0.5), (98, -0.5))}),
        ({"logit_bias": {"97": 1, "b": False}}, {"logit_bias": ((97, 1.0), (98, -math.inf))}),
        ({"samplers": ["top_k"], "top_k": 5}, {"temperature": 1.0, "top_k": 5, "top_p": 1.0, "min_p": 0.0}),
        ({"samplers": "tkpm"}, {}),
        ({"samplers": ["temperature", "dry", "top_k", "xtc"]}, {"top_p": 1.0, "min_p": 0.0}),
        ({"samplers": ["top_k", "temperature"]}, {"top_p": 1.0, "min_p": 0.0}),
        ({"samplers": ["min_p", "top_p", "temperature"], "temperature": 0}, {"temperature": 0.0, "top_k": 0}),
        ({"samplers": ["temperature"], "presence_penalty": 1}, {"top_k": 0, "top_p": 1.0, "min_p": 0.0}),
        ({"samplers": list(ORDER)}, {"samplers": ORDER}),
        ({"samplers": "edskypmxt"}, {"samplers": ORDER}),
        ({"samplers": ["top_p", "temperature"]}, {"samplers": ("top_p", "temperature"), "top_k": 0, "min_p": 0.0}),
        ({"samplers": ["min-p", "nucleus"]}, {"samplers": ("min_p", "top_p"), "top_k": 0, "temperature": 1.0}),
        ({"samplers": ["dry", "penalties"], "dry_multiplier": 1, "dry_sequence_breakers": ["x"]}, ONLY_DRY),
        ({"typical_p": 0.9, "xtc_probability": 0.5}, {"typical_p": 0.9, "xtc_probability": 0.5}),
        ({"samplers": ["top_k"], "typical_p": 0.9, "top_k": 4}, ONLY_TOP_K),
        ({"mirostat": 2, "mirostat_tau": 4}, {"mirostat": 2, "mirostat_tau": 4}),
        ({"top_n_sigma": -5}, {"top_n_sigma": -1.0}),
    ],
)
async def test_honoured(within: Connect, fields: dict[str, Any], params: dict[str, Any]) -> None:
    assert await asked_for(within, **fields) == SamplingParams(**LLAMA | params)


async def test_the_settings_go_before_llama_servers_defaults(within: Connect) -> None:
    defaults = RequestDefaults(temperature=0.5, max_tokens=3)
    async with within(door := FakeDoor("abcdef"), defaults=defaults) as http:
        await http.post(URL, json={"prompt": "Hi"})
        params = (await http.get("/props")).json()["default_generation_settings"]["params"]
    assert door.asked[0].sampling == SamplingParams(**LLAMA | {"temperature": 0.5, "max_tokens": 3})
    assert (params["temperature"], params["n_predict"], params["top_k"]) == (0.5, 3, 40)


async def test_grammars(within: Connect) -> None:
    fields: dict[str, Any]
    for fields in ({"grammar": 'root ::= "a"'}, {"json_schema": {}}, {"json_schema": {"type": "integer"}}):
        assert (await asked_for(within, **fields)).grammar
    assert not (await asked_for(within, grammar="")).grammar


async def test_further_stop_tokens(within: Connect) -> None:
    async with within(door := FakeDoor("a")) as http:
        await http.post(URL, json={"prompt": "Hi", "stop_token_ids": [97]})
    assert door.asked[0].stop_ids == {97, EOS}


NO_EFFECT: dict[str, Any] = {
    "id_slot": 2,
    "n_cache_reuse": 256,
    "t_max_prompt_ms": 500,
    "min_keep": 1,
    "xtc_threshold": 0.1,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["x"],
    "mirostat_tau": 5,
    "mirostat_eta": 0.1,
    "dynatemp_exponent": 1,
    "speculative.n_max": 16,
    "backend_sampling": True,
    "preserved_tokens": ["x"],
    "whatever": 1,
}
NEUTRAL: dict[str, Any] = {
    "typical_p": 1.0,
    "xtc_probability": 0.0,
    "top_n_sigma": -1.0,
    "adaptive_target": -1,
    "dynatemp_range": 0,
    "mirostat": 0,
    "dry_multiplier": 0.0,
    "t_max_predict_ms": 0,
    "n_indent": 0,
    "lora": [],
    "post_sampling_probs": False,
    "grammar_lazy": False,
    "grammar_triggers": [],
    "image_data": [],
}


async def test_without_effect(within: Connect) -> None:
    assert await asked_for(within, **NO_EFFECT, **NEUTRAL) == SamplingParams(**LLAMA)


async def test_what_settings_tell_can_be_asked_for(within: Connect) -> None:
    async with within(door := FakeDoor("a")) as http:
        settings = (await http.get("/props")).json()["default_generation_settings"]["params"]
        answer = await http.post(URL, json={"prompt": "Hi"} | settings)
    assert answer.status_code == 200, answer.text
    assert door.asked[0].sampling == SamplingParams(**LLAMA)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, {"samplers": ["penalties", "dry", "temperature", "top_k", "top_p", "min_p"], "typical_p": 1.0}),
        ({"typical_p": 0.5}, {"samplers": list(ORDER), "typical_p": 0.5}),
        ({"samplers": ["min_p", "top_k"]}, {"samplers": ["min_p", "top_k"], "top_p": 1.0, "temperature": 1.0}),
        ({"dry_multiplier": 0.5}, {"dry_multiplier": 0.5, "dry_sequence_breakers": ["\n", ":", '"', "*"]}),
        ({"mirostat": 1, "mirostat_tau": 3}, {"mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.1}),
    ],
)
async def test_settings_tell_what_is_done(within: Connect, fields: dict[str, Any], told: dict[str, Any]) -> None:
    async with within(FakeDoor("a")) as http:
        settings = (await http.post(URL, json={"prompt": "Hi"} | fields)).json()["generation_settings"]
    assert settings.items() >= told.items()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"typical_p": 1.9}, "typical_p"),
        ({"xtc_probability": -0.5}, "xtc_probability"),
        ({"mirostat": 3}, "mirostat"),
        ({"dry_multiplier": "x"}, "dry_multiplier"),
        ({"dry_sequence_breakers": [""]}, "dry_sequence_breakers"),
        ({"adaptive_target": 0.5}, "adaptive_target"),
        ({"t_max_predict_ms": 500}, "t_max_predict_ms"),
        ({"n_indent": 4}, "n_indent"),
        ({"min_keep": 2}, "min_keep"),
        ({"lora": [{"id": 0, "scale": 1}]}, "lora"),
        ({"post_sampling_probs": True, "n_probs": 2}, "post_sampling_probs"),
        ({"grammar_lazy": True}, "grammar_lazy"),
        ({"image_data": [{"id": 1}]}, "image_data"),
        ({"n_probs": 21}, "n_probs"),
        ({"n_probs": -1}, "n_probs"),
        ({"n_predict": "5"}, "n_predict"),
        ({"n_cmpl": 0}, "n_cmpl"),
        ({"top_p": 1.5}, "top_p"),
        ({"temperature": float("nan")}, "temperature"),
        ({"grammar": "root ::= ("}, "grammar"),
        ({"grammar": 'root ::= "a"', "json_schema": {}}, "grammar"),
        ({"logit_bias": [[999, 1]]}, "logit_bias"),
        ({"samplers": ["top_k", "infill"]}, "samplers"),
        ({"samplers": ["top_k", "penalties"], "repeat_penalty": 1.1}, "samplers"),
        ({"samplers": ["min_p", "dry"], "dry_multiplier": 1.1}, "samplers"),
        ({"samplers": ["dry", "penalties"], "dry_multiplier": 1.1, "repeat_penalty": 1.1}, "samplers"),
        ({"samplers": ["dry", "dry"], "dry_multiplier": 1.1}, "samplers"),
        ({"samplers": ["adaptive_p"]}, "samplers"),
        ({"samplers": 5}, "samplers"),
        ({"response_fields": "content"}, "response_fields"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": ["a", 1.5]}, "prompt"),
        ({"prompt": "\ud800"}, "prompt"),
        ({"prompt": [257]}, "prompt"),
        ({"prompt": [1, -1]}, "prompt"),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}}, "prompt"),
        ({"prompt": ["a"] * 2049}, "prompt"),
        ({"prompt": ["a"] * 100, "n_cmpl": 100}, "prompt"),
    ],
)
async def test_refused(within: Connect, fields: dict[str, Any], param: str) -> None:
    async with within(door := FakeDoor("a")) as http:
        answer = await http.post(URL, content=json.dumps({"prompt": "Hi", "stream": True} | fields))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (400, 400, "invalid_request_error")
    assert error["param"] == param
    assert param in error["message"]
    assert not door.asked


async def test_a_prompt_without_room(within: Connect) -> None:
    async with within(FakeDoor("a")) as http:
        answer = await http.post(URL, json={"prompt": [1] * N_CTX, "stream": True})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (400, 400, "exceed_context_size_error")
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (N_CTX, N_CTX)


async def test_another_model(within: Connect) -> None:
    async with within(FakeDoor("a")) as http:
        answer = await http.post(URL, json={"prompt": "Hi", "model": "other"})
    assert answer.status_code == 404
    assert (answer.json()["error"]["code"], answer.json()["error"]["type"]) == (404, "not_found_error")


def test_the_defaults_are_llama_servers() -> None:
    assert DEFAULTS.items() >= LLAMA.items()
