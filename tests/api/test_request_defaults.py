"""What requests get for fields that they leave out, and settings that no request could ask for."""

from typing import Any

import pytest

from parkway.api.serving import Serving
from parkway.config import EngineSettings, RequestDefaults, ServerSettings
from parkway.errors import BadSetting, StartError
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor, byte_text

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
TEMPLATE = "{{ enable_thinking }} {{ reasoning_effort }} {{ more }}|{% for m in messages %}{{ m.content }}{% endfor %}"


async def sampled(within: Connect, defaults: RequestDefaults, body: dict[str, Any], path: str = "completions") -> Any:
    """The parameters that the engine gets."""
    door = FakeDoor()
    async with within(door, defaults=defaults) as client:
        response = await client.post(f"/v1/{path}", json=body)
    assert response.status_code == 200, response.text
    return door.asked[0].sampling


async def test_defaults_are_for_what_is_left_out(within: Connect) -> None:
    defaults = RequestDefaults(
        max_tokens=5,
        temperature=0.5,
        top_k=7,
        top_p=0.5,
        min_p=0.25,
        repeat_penalty=1.5,
        repeat_last_n=9,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        ignore_eos="on",
        cache_prompt="off",
        logit_bias=("7+1.5", "8-inf"),
        stop=("x",),
        typical_p=0.5,
        mirostat=2,
        mirostat_tau=3.0,
        dry_multiplier=0.5,
        dry_sequence_breakers=("ab",),
    )
    made = await sampled(within, defaults, {"prompt": "a", "top_k": 3, "temperature": None})
    assert (made.max_tokens, made.temperature, made.top_k, made.top_p, made.min_p) == (5, 0.5, 3, 0.5, 0.25)
    assert (made.repeat_penalty, made.repeat_last_n) == (1.5, 9)
    assert (made.presence_penalty, made.frequency_penalty) == (0.5, 0.25)
    assert (made.ignore_eos, made.cache_prompt, made.stop) == (True, False, ("x",))
    assert made.logit_bias == ((7, 1.5), (8, float("-inf")))
    assert (made.typical_p, made.mirostat, made.mirostat_tau) == (0.5, 2, 3.0)
    assert (made.dry_multiplier, made.dry_breakers) == (0.5, ((97, 98),))


@pytest.mark.parametrize("samplers", ["top_p;temperature", "pt", "top-p;temp"])
async def test_an_order_of_samplers(within: Connect, samplers: str) -> None:
    defaults = RequestDefaults(samplers=samplers, top_p=0.5, temperature=0.5)
    assert (await sampled(within, defaults, {"prompt": "a"})).samplers == ("top_p", "temperature")
    assert (await sampled(within, defaults, {"prompt": "a", "samplers": ["min_p"]})).samplers == ()


async def test_a_field_by_its_other_name_has_the_last_word_too(within: Connect) -> None:
    defaults = RequestDefaults(typical_p=0.5, mirostat=1)
    made = await sampled(within, defaults, {"prompt": "a", "typ_p": 0.75, "mirostat_mode": 2})
    assert (made.typical_p, made.mirostat) == (0.75, 2)


async def test_no_breakers(within: Connect) -> None:
    defaults = RequestDefaults(dry_multiplier=0.5, dry_sequence_breakers=("none",))
    assert (await sampled(within, defaults, {"prompt": "a"})).dry_breakers == ()


async def test_a_request_has_the_last_word(within: Connect) -> None:
    defaults = RequestDefaults(
        max_tokens=5, cache_prompt="off", stop=("x",), repeat_penalty=1.5, repeat_last_n=9, seed=1
    )
    body = {"prompt": "a", "n_predict": 3, "cache_prompt": True, "stop": [], "repetition_penalty": 1.25}
    made = await sampled(within, defaults, body)
    assert (made.max_tokens, made.cache_prompt, made.stop) == (3, True, ())
    assert (made.repeat_penalty, made.repeat_last_n) == (1.25, -1)
    chat = await sampled(within, defaults, CHAT | {"max_completion_tokens": 4}, "chat/completions")
    assert chat.max_tokens == 4


async def test_a_seed_for_all(within: Connect) -> None:
    door = FakeDoor()
    async with within(door, defaults=RequestDefaults(seed=11)) as client:
        for body in ({"prompt": "a"}, {"prompt": "a", "seed": 12}):
            await client.post("/v1/completions", json=body)
    assert [request.seed for request in door.asked] == [11, 12]


async def test_a_form_is_for_requests_without_one_and_without_tools(within: Connect) -> None:
    defaults = RequestDefaults(grammar='root ::= "a"')
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    plain = await sampled(within, defaults, CHAT, "chat/completions")
    assert plain.grammar is not None
    other = await sampled(within, defaults, CHAT | {"json_schema": {"type": "object"}}, "chat/completions")
    assert other.grammar not in (None, plain.grammar)
    assert (await sampled(within, defaults, CHAT | {"tools": [tool]}, "chat/completions")).grammar is None
    schema = await sampled(within, RequestDefaults(json_schema='{"type": "object"}'), {"prompt": "a"})
    assert schema.grammar == other.grammar


async def test_templates_are_told_what_chats_do_not_say(within: Connect) -> None:
    defaults = RequestDefaults(reasoning="off", reasoning_effort="low", chat_template_kwargs='{"more": 1}')
    door = FakeDoor()
    async with within(door, byte_text(TEMPLATE), defaults=defaults) as client:
        for more in ({}, {"enable_thinking": True, "chat_template_kwargs": {"more": 2}}):
            assert (await client.post("/v1/chat/completions", json=CHAT | more)).status_code == 200
    prompts = [bytes(request.prompt).decode() for request in door.asked]
    assert prompts == ["False low 1|Hi", "True low 2|Hi"]


async def test_another_template_than_the_models(within: Connect) -> None:
    door = FakeDoor()
    async with within(door, chat_template="<{{ messages[0].content }}>") as client:
        await client.post("/v1/chat/completions", json=CHAT)
    assert bytes(door.asked[0].prompt) == b"<Hi>"


async def test_aliases_are_all_names_of_the_model() -> None:
    serving = _serving(ServerSettings(alias="one, two"))
    assert serving.model_name == "one"
    for name in ("one", "two", "toy"):
        serving.check_model(name)


async def test_no_slots(within: Connect) -> None:
    async with within(FakeDoor(), slots="off") as client:
        response = await client.get("/slots")
    assert response.status_code == 501
    assert "--no-slots" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("defaults", "sentence"),
    [
        (RequestDefaults(temperature=-1), "--temp: temperature must be between 0 and 100, not -1"),
        (RequestDefaults(max_tokens=-5), "--predict: max_tokens must be between"),
        (RequestDefaults(typical_p=2.0), "--typical: typical_p must be between 0 and 1, not 2.0"),
        (RequestDefaults(samplers="kq"), "--samplers: samplers: 'q' is not supported"),
        (RequestDefaults(dry_sequence_breakers=("",)), "--dry-sequence-breaker: must be a list of at most 16 strings"),
        (RequestDefaults(top_p=2.0), "--top-p: top_p must be between 0 and 1, not 2.0"),
        (RequestDefaults(stop=("",)), "--reverse-prompt: stop must not contain an empty string"),
        (RequestDefaults(logit_bias=("x+1",)), "--logit-bias: must be ID+NUMBER or ID-NUMBER, not 'x+1'"),
        (RequestDefaults(logit_bias=("999+1",)), "--logit-bias: logit_bias holds 999, which is not a token id"),
        (RequestDefaults(grammar="root ::= ("), "--grammar: "),
        (RequestDefaults(grammar='root ::= "a"', json_schema="{}"), "--grammar: "),
    ],
    ids=str,
)
async def test_what_no_request_could_ask_for_keeps_the_server_from_starting(
    defaults: RequestDefaults, sentence: str
) -> None:
    with pytest.raises(BadSetting) as refusal:
        _serving(ServerSettings(defaults=defaults))
    assert str(refusal.value).startswith(sentence)


async def test_a_template_that_is_not_valid_keeps_the_server_from_starting() -> None:
    with pytest.raises(StartError, match="the chat template is not valid Jinja"):
        _serving(ServerSettings(chat_template="{% if %}"))


def _serving(settings: ServerSettings) -> Serving:
    return Serving(FakeDoor(), byte_text(), EngineSettings(), settings)
