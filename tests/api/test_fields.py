"""Every field that OpenAI, llama-server or vLLM know for both endpoints: honoured, ignored, or refused by name."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from parkway.api import chat_body, completion_body
from parkway.api.chat_body import ChatBody
from parkway.api.completion_body import CompletionBody
from tests.api.conftest import Connect
from tests.api.fake import EOS, FakeDoor

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "Hi"}]
ASKED: dict[str, dict[str, Any]] = {CHAT: {"messages": HI}, COMPLETIONS: {"prompt": "Hi"}}
both = pytest.mark.parametrize("url", [CHAT, COMPLETIONS])


async def asked(within: Connect, url: str, fields: dict[str, Any], answer: str = "abc") -> tuple[FakeDoor, Any]:
    async with within(door := FakeDoor(answer)) as http:
        response = await http.post(url, content=json.dumps(ASKED[url] | fields))
    return door, response


async def honoured(within: Connect, url: str, **fields: Any) -> FakeDoor:
    door, response = await asked(within, url, fields)
    assert response.status_code == 200, response.text
    return door


async def refused(within: Connect, url: str, **fields: Any) -> tuple[str, str]:
    door, response = await asked(within, url, fields)
    assert response.status_code == 400, response.text
    assert not door.asked
    error = response.json()["error"]
    return error["param"], error["message"]


HONOURED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 0}, {"temperature": 0}),
    ({"top_k": 5, "top_p": 0.5, "min_p": 0.1}, {"top_k": 5, "top_p": 0.5, "min_p": 0.1}),
    ({"top_k": -1}, {"top_k": 0}),
    ({"seed": 2**64 - 1}, {"seed": 2**64 - 1}),
    ({"seed": -1}, {"seed": None}),
    ({"max_tokens": 2}, {"max_tokens": 2}),
    ({"max_tokens": 0}, {"max_tokens": 0}),
    ({"max_tokens": -1}, {"max_tokens": None}),
    ({"n_predict": 3}, {"max_tokens": 3}),
    ({"n_predict": -1}, {"max_tokens": None}),
    ({"n_predict": 3, "max_tokens": 2}, {"max_tokens": 2}),
    ({"min_tokens": 2, "max_tokens": 2}, {"min_tokens": 2}),
    ({"presence_penalty": 0.5, "frequency_penalty": -2}, {"presence_penalty": 0.5, "frequency_penalty": -2}),
    ({"repeat_penalty": 1.1}, {"repeat_penalty": 1.1, "repeat_last_n": 64}),
    ({"repeat_penalty": 1.1, "repeat_last_n": -1}, {"repeat_penalty": 1.1, "repeat_last_n": -1}),
    ({"repetition_penalty": 1.1}, {"repeat_penalty": 1.1, "repeat_last_n": -1}),
    ({"repetition_penalty": 1.1, "repeat_last_n": 7}, {"repeat_penalty": 1.1, "repeat_last_n": 7}),
    ({"logit_bias": {"97": 5, "98": -1.5}}, {"logit_bias": ((97, 5.0), (98, -1.5))}),
    ({"logit_bias": {"ab": 1}}, {"logit_bias": ((97, 1.0), (98, 1.0))}),
    ({"logit_bias": [[97, 1], ["ab", 2], [99, False]]}, {"logit_bias": ((97, 3.0), (98, 2.0), (99, -math.inf))}),
    ({"logit_bias": {}}, {"logit_bias": ()}),
    ({"stop": "x"}, {"stop": ("x",)}),
    ({"stop": ["x", "y"]}, {"stop": ("x", "y")}),
    ({"ignore_eos": True, "cache_prompt": False}, {"ignore_eos": True, "cache_prompt": False}),
    ({"typical_p": 0.5}, {"typical_p": 0.5}),
    ({"typ_p": 0.5}, {"typical_p": 0.5}),
    ({"top_n_sigma": 1}, {"top_n_sigma": 1.0}),
    ({"xtc_probability": 0.5, "xtc_threshold": 0.2}, {"xtc_probability": 0.5, "xtc_threshold": 0.2}),
    ({"dynatemp_range": 0.5, "dynatemp_exponent": 2}, {"dynatemp_range": 0.5, "dynatemp_exponent": 2.0}),
    ({"mirostat": 2, "mirostat_tau": 4, "mirostat_eta": 0.2}, {"mirostat": 2, "mirostat_tau": 4, "mirostat_eta": 0.2}),
    ({"mirostat_mode": 1}, {"mirostat": 1}),
    ({"dry_multiplier": 0.8, "dry_base": 2}, {"dry_multiplier": 0.8, "dry_base": 2.0, "dry_allowed_length": 2}),
    ({"dry_allowed_length": 3, "dry_penalty_last_n": 9}, {"dry_allowed_length": 3, "dry_penalty_last_n": 9}),
    ({"dry_multiplier": 1}, {"dry_breakers": ((10,), (58,), (34,), (42,))}),
    ({"dry_multiplier": 1, "dry_sequence_breakers": ["ab", "c"]}, {"dry_breakers": ((97, 98), (99,))}),
    ({"dry_multiplier": 1, "dry_sequence_breakers": []}, {"dry_breakers": ()}),
    ({"dry_sequence_breakers": ["x"]}, {"dry_breakers": ()}),
    (
        {"samplers": ["min_p", "temperature"], "min_p": 0.1, "temperature": 0.5, "top_k": 3, "presence_penalty": 1},
        {"samplers": ("min_p", "temperature"), "min_p": 0.1, "top_k": 0, "presence_penalty": 0.0},
    ),
    ({"samplers": ["temperature", "top_p"], "top_p": 0.5, "temperature": 0.5}, {"samplers": (), "top_p": 0.5}),
]


@both
@pytest.mark.parametrize(("fields", "expected"), HONOURED, ids=str)
async def test_honoured(within: Connect, url: str, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    [request] = (await honoured(within, url, **fields)).asked
    assert {name: getattr(request.sampling, name) for name in expected} == expected


async def test_the_newest_limit_of_a_chat_wins(within: Connect) -> None:
    door = await honoured(within, CHAT, max_completion_tokens=2, max_tokens=3, n_predict=4)
    assert door.asked[0].sampling.max_tokens == 2
    door = await honoured(within, CHAT, max_completion_tokens=-1)
    assert door.asked[0].sampling.max_tokens is None


@both
async def test_stop_token_ids(within: Connect, url: str) -> None:
    door = await honoured(within, url, stop_token_ids=[97, 98])
    assert set(door.asked[0].stop_ids) == {97, 98, EOS}
    door = await honoured(within, url, stop_token_ids=[97], ignore_eos=True)
    assert set(door.asked[0].stop_ids) == {97}
    assert not door.asked[0].sampling.ignore_eos  # which is about all of them to the engine
    assert (await refused(within, url, stop_token_ids=[257]))[0] == "stop_token_ids"
    assert (await refused(within, url, stop_token_ids=[-1]))[0] == "stop_token_ids"
    assert (await refused(within, url, stop_token_ids="a"))[0] == "stop_token_ids"


IGNORED: dict[str, Any] = {
    "user": "me",
    "store": True,
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "prediction": {"type": "content"},
    "verbosity": "low",
    "safety_identifier": "x",
    "prompt_cache_key": "x",
    "id_slot": 3,
    "adaptive_decay": 0.9,
    "guided_decoding_backend": "auto",
    "nonsense": [1],
}
NEUTRAL: dict[str, Any] = {
    "typical_p": 1,
    "xtc_probability": 0,
    "top_n_sigma": -1,
    "dynatemp_range": 0,
    "mirostat": 0,
    "mirostat_mode": None,
    "adaptive_target": -1,
    "tfs_z": 1.0,
    "dry_multiplier": 0.0,
    "samplers": None,
    "bad_words": [],
    "use_beam_search": False,
    "length_penalty": 1.0,
    "include_stop_str_in_output": False,
    "skip_special_tokens": True,
    "best_of": 1,
    "suffix": "",
    "lora": [],
    "n_probs": 0,
    "prompt_logprobs": None,
    "response_format": {"type": "text"},
    "grammar": "",
    "json_schema": None,
}
NEUTRAL_CHAT: dict[str, Any] = {
    "functions": [],
    "function_call": "none",
    "modalities": ["text"],
    "audio": None,
    "web_search_options": None,
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "chat_template": "",
    "reasoning_format": "auto",
    "chat_template_kwargs": {},
    "echo": False,
    "thinking_budget_tokens": -1,
    "top_logprobs": 0,
}


@both
async def test_ignored_and_neutral(within: Connect, url: str) -> None:
    plain = (await honoured(within, url, seed=1)).asked
    fields = IGNORED | NEUTRAL | (NEUTRAL_CHAT if url == CHAT else {})
    assert (await honoured(within, url, seed=1, **fields)).asked == plain


@both
async def test_what_a_context_shift_keeps(within: Connect, url: str) -> None:
    sampling = (await honoured(within, url, n_keep=5, n_discard=64)).asked[0].sampling
    assert (sampling.n_keep, sampling.n_discard) == (5, 64)


REFUSED: dict[str, list[Any]] = {
    "n_keep": [-2, 1.5, "x"],
    "n_discard": [-1],
    "typical_p": [-0.5, 1.5, True],
    "typ_p": [2],
    "top_n_sigma": [-2, 1001, "x"],
    "xtc_probability": [1.1, -1],
    "xtc_threshold": [2],
    "dynatemp_range": [-0.5],
    "dynatemp_exponent": [-1],
    "mirostat": [3, -1, 1.5],
    "mirostat_mode": [3],
    "mirostat_tau": [-1],
    "mirostat_eta": [-1, "x"],
    "dry_multiplier": [-0.8],
    "dry_base": [0.5],
    "dry_allowed_length": [-1, 1.5],
    "dry_penalty_last_n": [-2],
    "dry_sequence_breakers": ["x", [""], [5], ["x" * 41], ["x"] * 17],
    "samplers": [["top_k", "tfs_z"], "kq", 5, [5], ["top_k"] * 33],
    "adaptive_target": [0.5],
    "bad_words": [["x"]],
    "allowed_token_ids": [[1]],
    "use_beam_search": [True],
    "length_penalty": [0.5],
    "include_stop_str_in_output": [True],
    "skip_special_tokens": [False, 0],
    "truncate_prompt_tokens": [5],
    "prompt_logprobs": [1, 0],
    "n_probs": [3],
    "post_sampling_probs": [True],
    "best_of": [2],
    "suffix": ["x"],
    "lora": [[{"id": 0}]],
    "repeat_penalty": [0, -1, "x", 101],
    "repetition_penalty": [0, 101],
    "repeat_last_n": [-2, 1.5],
    "presence_penalty": [101, "x"],
    "frequency_penalty": [-101],
    "min_tokens": [-1, 1.5],
    "n_predict": [-2, 2**31],
    "max_tokens": [-2, 2**31],
    "logit_bias": [5, {"300": 1}, {"97": "x"}, {"97": True}, [[97]], [[97, 1, 2]], [[True, 1]], {"97": 1e9}, [[-1, 1]]],
    "timings_per_token": ["yes"],
}
REFUSED_CHAT: dict[str, list[Any]] = {
    "functions": [[{"name": "f"}]],
    "function_call": [{"name": "f"}],
    "modalities": [["text", "audio"]],
    "audio": [{"voice": "alloy"}],
    "web_search_options": [{}],
    "chat_template": ["{{ messages }}"],
    "reasoning_format": ["deepseek-legacy", True],
    "thinking_budget_tokens": [100],
    "echo": [True],
    "max_completion_tokens": [-2, 2**31, "x"],
    "parallel_tool_calls": ["no"],
    "tool_choice": ["required", "any", 5, {"type": "function"}, {"type": "function", "function": {"name": "f"}}],
    "chat_template_kwargs": [[]],
    "enable_thinking": ["yes"],
    "continue_final_message": [True, "yes"],
}
CASES = [(url, name, value) for url in ASKED for name, values in REFUSED.items() for value in values]
CASES += [(CHAT, name, value) for name, values in REFUSED_CHAT.items() for value in values]


@pytest.mark.parametrize(("url", "name", "value"), CASES, ids=str)
async def test_refused(within: Connect, url: str, name: str, value: Any) -> None:
    param, message = await refused(within, url, **{name: value})
    if (name, value) == ("continue_final_message", True):
        assert param == "messages"  # the last one is the user's
    else:
        assert param == name
        assert name in message


@both
async def test_a_field_is_named_as_it_was_spelt(within: Connect, url: str) -> None:
    param, message = await refused(within, url, n_predict=-3)
    assert (param, message[:9]) == ("n_predict", "n_predict")
    param, message = await refused(within, url, min_tokens=5, max_tokens=4)
    assert param == "min_tokens"
    param, message = await refused(within, url, repeat_penalty=1.1, repetition_penalty=1.2)
    assert param == "repetition_penalty"


TOOLS = [
    ([{"type": "function"}], "tools.0.function"),
    ([{"type": "custom", "function": {"name": "f"}}], "tools.0.type"),
    ([{"type": "function", "function": {"name": ""}}], "tools.0.function.name"),
    ([{"type": "function", "function": {"name": "f", "parameters": []}}], "tools.0.function.parameters"),
    ([{"type": "function", "function": {"name": "f"}}] * 2, "tools.1.function.name"),
    ("f", "tools"),
]


@pytest.mark.parametrize(("tools", "param"), TOOLS, ids=str)
async def test_wrong_tools(within: Connect, tools: Any, param: str) -> None:
    assert (await refused(within, CHAT, tools=tools))[0] == param


MESSAGES = [
    ({"role": "function", "name": "f", "content": "x"}, "messages.1.role"),
    ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, "messages.1.content.0.type"),
    ({"role": "tool", "tool_call_id": 5, "content": "x"}, "messages.1.tool_call_id"),
    ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "messages.1.tool_calls.0.function"),
    ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]},
     "messages.1.tool_calls.0.function.arguments"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "param"), MESSAGES, ids=str)
async def test_wrong_messages(within: Connect, message: Any, param: str) -> None:
    assert (await refused(within, CHAT, messages=[*HI, message]))[0] == param


# What form the answer must have

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
GOOD, BAD = '{"a": 5}', '{"a": "x"}'
FORMS: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": {"type": "json_object"}}, BAD, "x"),
    ({"response_format": {"type": "json_object", "schema": OBJECT}}, GOOD, BAD),
    ({"response_format": {"type": "json_schema", "schema": OBJECT}}, GOOD, BAD),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": OBJECT}}}, GOOD, BAD),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": OBJECT}}},
        GOOD,
        BAD,
    ),
    ({"json_schema": OBJECT}, GOOD, BAD),
    ({"grammar": 'root ::= "yes" | "no"'}, "yes", "maybe"),
    ({"grammar": '%llguidance {}\nstart: "yes" | "no"'}, "yes", "maybe"),
    ({"guided_json": OBJECT}, GOOD, BAD),
    ({"guided_json": json.dumps(OBJECT)}, GOOD, BAD),
    ({"guided_regex": "[0-9]{3}"}, "123", "12a"),
    ({"guided_choice": ["a.b", "c d|", 'quote"']}, 'quote"', "axb"),
    ({"guided_grammar": 'root ::= "yes"'}, "yes", "no"),
    ({"guided_grammar": 'start: "yes"'}, "yes", "no"),
    ({"structured_outputs": {"json": OBJECT}}, GOOD, BAD),
    ({"structured_outputs": {"json": json.dumps(OBJECT)}}, GOOD, BAD),
    ({"structured_outputs": {"json_object": True}}, BAD, "[]"),
    ({"structured_outputs": {"regex": "a+"}}, "aa", "b"),
    ({"structured_outputs": {"choice": ["a", "b"]}}, "b", "c"),
    ({"structured_outputs": {"grammar": 'start: "yes"'}}, "yes", "no"),
]


def keeps(grammar: str, text: str) -> bool:
    assert json.loads(grammar)["grammars"], "the engine reads the serialised form"
    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0)
    return bool(matcher.consume_tokens(list(text.encode()))) and bool(matcher.is_accepting())


@both
@pytest.mark.parametrize(("fields", "good", "bad"), FORMS, ids=lambda value: str(value)[:50])
async def test_forms(within: Connect, url: str, fields: dict[str, Any], good: str, bad: str) -> None:
    door = await honoured(within, url, **fields)
    grammar = door.asked[0].sampling.grammar
    assert grammar is not None
    assert door.taught is not None
    assert len(door.taught.pieces) == 257
    assert keeps(grammar, good)
    assert not keeps(grammar, bad)


WRONG = {"type": "nonsense"}
WRONG_FORMS: list[tuple[dict[str, Any], str]] = [
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "structural_tag"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format.json_schema.schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": WRONG}}},
        "response_format.json_schema.schema",
    ),
    ({"response_format": {"type": "json_object", "schema": WRONG}}, "response_format.schema"),
    ({"json_schema": WRONG}, "json_schema"),
    ({"json_schema": []}, "json_schema"),
    ({"grammar": "root ::= nonsense"}, "grammar"),
    ({"grammar": 5}, "grammar"),
    ({"guided_json": "{"}, "guided_json"),
    ({"guided_json": 5}, "guided_json"),
    ({"guided_json": WRONG}, "guided_json"),
    ({"guided_regex": "("}, "guided_regex"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_choice": [5]}, "guided_choice.0"),
    ({"guided_grammar": "start: nonsense"}, "guided_grammar"),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
    ({"structured_outputs": {"json": WRONG}}, "structured_outputs.json"),
    (
        {"structured_outputs": {"structural_tag": {}, "whitespace_pattern": "x"}},
        "structured_outputs.whitespace_pattern",
    ),
    ({"guided_regex": "a", "grammar": 'root ::= "a"'}, "guided_regex"),
]


@both
@pytest.mark.parametrize(("fields", "param"), WRONG_FORMS, ids=lambda value: str(value)[:70])
async def test_wrong_forms(within: Connect, url: str, fields: dict[str, Any], param: str) -> None:
    assert (await refused(within, url, **fields))[0] == param


def test_the_document_names_every_field() -> None:
    document = (Path(__file__).parents[2] / "docs" / "openai.md").read_text()
    named = set(re.findall(r"`([a-z_]+)`", document))
    known = {*ChatBody.model_fields, *CompletionBody.model_fields, *chat_body.UNBUILT, *completion_body.UNBUILT}
    assert known - {"stream_options"} <= named


# The template


async def test_an_answer_is_gone_on_with(within: Connect) -> None:
    messages = [*HI, {"role": "assistant", "content": " Once upon "}]
    fields: dict[str, Any] = {"messages": messages, "continue_final_message": True}
    door = await honoured(within, CHAT, **fields)
    assert bytes(door.asked[0].prompt) == b"<user>Hi<assistant> Once upon "
    await honoured(within, CHAT, **fields, add_generation_prompt=False)
    assert (await refused(within, CHAT, **fields, add_generation_prompt=True))[0] == "continue_final_message"


async def test_the_models_own_template_may_be_sent(within: Connect) -> None:
    from tests.api.fake import TEMPLATE

    await honoured(within, CHAT, chat_template=TEMPLATE)


# What the stream tells


def chunks(text: str) -> list[dict[str, Any]]:
    return [json.loads(frame.removeprefix("data: ")) for frame in text.split("\n\n")[:-2]]


@both
async def test_usage_and_timings_in_every_chunk(within: Connect, url: str) -> None:
    fields = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    _, response = await asked(within, url, fields | {"timings_per_token": True})
    told = chunks(response.text)
    opening = [0] if url == CHAT else []
    assert [chunk["usage"]["completion_tokens"] for chunk in told] == [*opening, 1, 2, 3, 4, 4]
    assert all(chunk["timings"]["prompt_n"] for chunk in told)
    assert told[-1]["choices"] == []


@both
async def test_timings(within: Connect, url: str) -> None:
    _, response = await asked(within, url, {})
    timings = response.json()["timings"]
    assert (timings["predicted_n"], timings["cache_n"]) == (4, 0)
    assert timings["predicted_per_second"] == pytest.approx(4000 / timings["predicted_ms"])
    assert timings["prompt_per_token_ms"] == pytest.approx(timings["prompt_ms"] / timings["prompt_n"])
