"""llama-server's endpoints about the server, and those for text."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from parkway.report import SlotView, View
from tests.api.conftest import Connect
from tests.api.fake import EOS, FINGERPRINT, TEMPLATE, FakeDoor, byte_text
from tests.api.parked import until

HI = [{"role": "user", "content": "Hi"}]


async def test_props(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        props = (await http.get("/props")).json()
    settings = props.pop("default_generation_settings")
    assert (settings["n_ctx"], settings["params"]["seed"], settings["params"]["temperature"]) == (256, -1, 0.8)
    assert props.pop("build_info").startswith("parkway-")
    assert props == {
        "total_slots": 4,
        "model_alias": "nick",
        "model_path": "toy",
        "chat_template": TEMPLATE,
        "chat_template_caps": {},
        "bos_token": "",
        "eos_token": "<|im_end|>",
        "modalities": {"vision": False, "audio": False, "video": False},
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "is_sleeping": False,
        "model": "nick",
        "n_ctx": 256,
        "context_shift": False,
        "memory": {
            "weight_bytes": 1,
            "pool_bytes": 2,
            "host_bytes": 3,
            "state_bytes": 20,
            "checkpoint_bytes": 24,
        },
        "exact_concurrency": True,
        "bit_check": None,
        "fingerprint": FINGERPRINT,
        "preempt": {
            "mode": "copy",
            "ram_bytes": 3,
            "async": True,
            "resume": "head",
            "quantum_seconds": 15.0,
            "notices": "comments",
        },
    }


async def test_props_of_fast_kernels_promise_nothing(within: Connect) -> None:
    door = FakeDoor()
    door.facts = replace(door.facts, exact=False)
    async with within(door) as http:
        assert (await http.get("/props")).json()["exact_concurrency"] is False


async def test_a_slot_at_work(within: Connect) -> None:
    async with within(door := FakeDoor("abc", paced=True)) as http:
        body = {"prompt": "Hi", "n_predict": 9, "seed": 5, "temperature": 0.5}
        asking = asyncio.create_task(http.post("/completion", json=body))
        await until(lambda: door.open)
        door.view = View([SlotView(0, 0, "decode", 2, 5, 4, 1, cached=1), SlotView(1)])
        at_work, idle = (await http.get("/slots")).json()
        while door.open:
            door.step()
        await asking
    assert (at_work["params"]["seed"], at_work["params"]["temperature"]) == (5, 0.5)
    assert at_work["next_token"] == [{"has_next_token": True, "n_remain": 6, "n_decoded": 3}]
    assert (at_work["n_prompt_tokens_processed"], at_work["n_prompt_tokens_cache"]) == (2, 1)
    assert not {"params", "next_token"} & idle.keys()


async def test_no_slot_is_free(within: Connect) -> None:
    url = "/slots?fail_on_no_slot=1"
    async with within(door := FakeDoor()) as http:
        assert (await http.get(url)).status_code == 200
        door.view = View([SlotView(0, 0, "decode"), SlotView(1, 1, "preempted")])
        assert (await http.get("/slots")).status_code == 200
        answer = await http.get(url)
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable_error")
    assert answer.json()["error"]["message"] == "no slot available"


async def test_no_slots_at_all(within: Connect) -> None:
    async with within(FakeDoor(), slots="off") as http:
        answer = await http.get("/slots")
        props = (await http.get("/props")).json()
    assert (answer.status_code, answer.json()["error"]["type"]) == (501, "not_supported_error")
    assert props["endpoint_slots"] is False


@pytest.mark.parametrize(
    "path",
    [
        *("/props", "/slots/0?action=save", "/slots/0?action=restore", "/slots/0?action=erase"),
        *("/lora-adapters", "/sleep"),
    ],
)
async def test_not_supported(within: Connect, path: str) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.post(path, json={})
    error = answer.json()["error"]
    assert answer.status_code == 501
    assert "not supported" in error["message"]
    assert (error["code"], error["type"]) == (501, "not_supported_error")


async def test_twins(within: Connect) -> None:
    async with within(FakeDoor("abc")) as http:
        assert (await http.get("/lora-adapters")).json() == []
        assert (await http.get("/models")).json() == (await http.get("/v1/models")).json()
        assert (await http.get("/v1/health")).json() == (await http.get("/health")).json()
        chat = (await http.post("/chat/completions", json={"messages": HI})).json()
    assert chat["choices"][0]["message"]["content"] == "abc"


async def test_a_template_is_applied(within: Connect) -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{% endfor %}|{{ tools | tojson }}|{{ mood }}|{{ add_generation_prompt }}"
    )
    tool = {"type": "function", "function": {"name": "look", "parameters": {}, "description": ""}}
    more = {"tools": [tool], "chat_template_kwargs": {"mood": "calm"}, "add_generation_prompt": False}
    async with within(FakeDoor(), byte_text(template)) as http:
        plain = await http.post("/apply-template", json={"messages": HI})
        told = await http.post("/apply-template", json={"messages": HI} | more)
        refused = await http.post("/apply-template", json={"messages": []})
    assert plain.json() == {"prompt": "Hi|null||True"}
    _, tools, *rest = told.json()["prompt"].split("|")
    assert (json.loads(tools)[0]["function"]["name"], rest) == ("look", ["calm", "False"])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")


async def test_texts_and_ids_are_tokenized_together(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.post("/tokenize", json={"content": ["a", EOS, "<|im_end|>"], "parse_special": False})
        assert answer.json() == {"tokens": [97, EOS, *b"<|im_end|>"]}
        assert (await http.post("/tokenize", json={"content": []})).json() == {"tokens": []}
        refused = await http.post("/tokenize", json={"content": [999]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "content")


async def test_errors_at_their_paths_have_their_shape(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.post("/detokenize", json={"tokens": "x"})
        other = await http.post("/v1/completions", json={"prompt": 5})
    assert answer.json()["error"].items() >= {"code": 400, "type": "invalid_request_error", "param": "tokens"}.items()
    assert other.json()["error"]["code"] is None


async def test_vllms_tokenizer_is_there_too(within: Connect) -> None:
    """lm-eval's remote tokenizer lives of these; without them it needs the model's folder beside the server."""
    text = byte_text()
    text.tokenizer._bos_id = 7
    async with within(FakeDoor(), text) as http:
        told = (await http.get("/tokenizer_info")).json()
        assert told == {"bos_token": None, "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
        answer = await http.post("/tokenize", json={"prompt": "a<|im_end|>", "add_special_tokens": False})
        assert answer.json() == {"tokens": [97, EOS], "count": 2, "max_model_len": 256}
        assert (await http.post("/tokenize", json={"prompt": "a"})).json()["tokens"] == [7, 97]
        assert (await http.post("/detokenize", json={"tokens": [97, EOS]})).json()["prompt"] == "a<|im_end|>"
