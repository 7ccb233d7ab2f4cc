"""Bad input: a 4xx in OpenAI's shape that names the field, nothing submitted, no stream opened."""

import json
from typing import Any

import httpx
import pytest
from msgspec import structs

from parkway.api.app import create_app
from parkway.config import EngineSettings, ServerSettings
from tests.api.conftest import Connect
from tests.api.fake import N_CTX, FakeDoor, byte_text

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "Hi"}]


def chat(**fields: Any) -> tuple[str, dict[str, Any]]:
    return CHAT, {"messages": HI} | fields


def completion(**fields: Any) -> tuple[str, dict[str, Any]]:
    return COMPLETIONS, {"prompt": "Hi"} | fields


def one_message(**fields: Any) -> tuple[str, dict[str, Any]]:
    return CHAT, {"messages": [{"role": "user", "content": "Hi"} | fields]}


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
BAD_FIELDS = [
    (chat(messages=None), "messages"),
    (chat(messages=[]), "messages"),
    (chat(messages="Hi"), "messages"),
    (chat(messages=[1]), "messages.0"),
    ((CHAT, {}), "messages"),
    (one_message(role="cat"), "messages.0.role"),
    (one_message(role=None), "messages.0.role"),
    (one_message(content=5), "messages.0.content"),
    (one_message(content=None), "messages.0.content"),
    (one_message(content=[{"type": "text", "text": "x"}, IMAGE]), "messages.0.content.1.type"),
    (one_message(content=[{"type": "text"}]), "messages.0.content.0.text"),
    (one_message(content="half \ud800"), "messages.0.content"),
    (one_message(content=[{"type": "text", "text": "\ud800"}]), "messages.0.content.0.text"),
    (one_message(role="tool"), "messages"),
    (chat(temperature=-1), "temperature"),
    (chat(temperature="hot"), "temperature"),
    (chat(temperature=float("nan")), "temperature"),
    (chat(temperature=float("inf")), "temperature"),
    (chat(temperature=10**400), "temperature"),
    (chat(temperature=True), "temperature"),
    (chat(top_p=1.5), "top_p"),
    (chat(min_p=-0.1), "min_p"),
    (chat(top_k=-2), "top_k"),
    (chat(top_k=1.5), "top_k"),
    (chat(seed=2**64), "seed"),
    (chat(seed=10**400), "seed"),
    (chat(seed=[]), "seed"),
    (chat(n=0), "n"),
    (chat(n=10**9), "n"),
    (chat(max_tokens=-2), "max_tokens"),
    (chat(max_completion_tokens=2**31), "max_completion_tokens"),
    (chat(stop=""), "stop"),
    (chat(stop=["a", ""]), "stop"),
    (chat(stop=[1]), "stop"),
    (chat(stop=["x"] * 33), "stop"),
    (chat(stop="\ud800"), "stop"),
    (chat(logprobs=True, top_logprobs=21), "top_logprobs"),
    (chat(top_logprobs=2), "top_logprobs"),
    (chat(logprobs=2), "logprobs"),
    (chat(cache_prompt="no"), "cache_prompt"),
    (chat(cache_prompt=0), "cache_prompt"),
    (completion(cache_prompt=[True]), "cache_prompt"),
    (chat(priority=2**31), "priority"),
    (chat(priority=-(2**31) - 1), "priority"),
    (chat(priority=1.0), "priority"),
    (chat(priority=True), "priority"),
    (completion(priority="high"), "priority"),
    (chat(notices="all"), "notices"),
    (chat(notices=True), "notices"),
    (completion(notices=["off"]), "notices"),
    (chat(sse_ping_interval=-2), "sse_ping_interval"),
    (chat(sse_ping_interval=0.5), "sse_ping_interval"),
    (completion(sse_ping_interval="1"), "sse_ping_interval"),
    (chat(stream="yes"), "stream"),
    (chat(stream_options={"include_usage": 1}), "stream_options.include_usage"),
    (completion(best_of=2), "best_of"),
    (completion(suffix="x"), "suffix"),
    (completion(logprobs=21), "logprobs"),
    (completion(logprobs=-1), "logprobs"),
    (completion(echo="yes"), "echo"),
    (completion(prompt=None), "prompt"),
    (completion(prompt=""), "prompt"),
    (completion(prompt=[]), "prompt"),
    (completion(prompt=[[]]), "prompt"),
    (completion(prompt=["a", ""]), "prompt"),
    (completion(prompt=["a", 5]), "prompt"),
    (completion(prompt=[True]), "prompt"),
    (completion(prompt=[257]), "prompt"),
    (completion(prompt=[-1]), "prompt"),
    (completion(prompt=[10**30]), "prompt"),
    (completion(prompt="half \ud800"), "prompt"),
    (completion(prompt=["a"] * 2000, n=2), "prompt"),
    (("/tokenize", {}), "content"),
    (("/tokenize", {"content": 5}), "content"),
    (("/tokenize", {"content": "\ud800"}), "content"),
    (("/tokenize", {"prompt": 5}), "prompt"),
    (("/tokenize", {"prompt": "\ud800"}), "prompt"),
    (("/tokenize", {"prompt": "a", "content": "a"}), "prompt"),
    (("/tokenize", {"messages": []}), "messages"),
    (("/tokenize", {"prompt": "a", "return_token_strs": True}), "return_token_strs"),
    (("/detokenize", {"tokens": "x"}), "tokens"),
    (("/detokenize", {"tokens": [257]}), "tokens"),
    (("/detokenize", {"tokens": [-1]}), "tokens"),
    (("/detokenize", {"tokens": [1.5]}), "tokens.0"),
]


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


CURLS_OWN = "application/x-www-form-urlencoded"
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(("asked", "param"), BAD_FIELDS, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize("stream", [False, True])
async def test_bad_field(within: Connect, asked: tuple[str, dict[str, Any]], param: str, stream: bool) -> None:
    url, body = asked
    async with within(door := FakeDoor()) as http:
        answer = await http.post(url, content=encoded({"stream": stream} | body), headers=JSON)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["message"]
    assert not door.asked


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"5", b"null", b'"x"', b"\xff", b'{"a": }', b"[" * 100_000, b'{"n": ' + b"9" * 5000 + b"}"],
    ids=lambda body: str(body[:10]),
)
@pytest.mark.parametrize("url", [CHAT, COMPLETIONS, "/tokenize", "/detokenize"])
async def test_bad_json(within: Connect, url: str, body: bytes) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.post(url, content=body, headers=JSON)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_deep_nesting_in_a_message(within: Connect) -> None:
    """It may be refused or ignored, as deep as the parser goes."""
    deep = b'{"messages": [{"role": "user", "content": "Hi", "more": ' + b"[" * 900 + b"]" * 900 + b"}]}"
    async with within(FakeDoor()) as http:
        assert (await http.post(CHAT, content=deep, headers=JSON)).status_code in (200, 400)


async def test_nul_is_text(within: Connect) -> None:
    async with within(door := FakeDoor()) as http:
        assert (await http.post(COMPLETIONS, json={"prompt": "a\0b"})).status_code == 200
        assert (await http.post(CHAT, json={"messages": [{"role": "user", "content": "\0"}]})).status_code == 200
    assert [bytes(r.prompt) for r in door.asked] == [b"a\0b", b"<user>\0"]


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}, {"content-type": CURLS_OWN}])
async def test_other_content_type(within: Connect, headers: dict[str, str]) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.post(CHAT, content=encoded({"messages": HI}), headers=headers)
        refused = await http.post(CHAT, content=b"messages=Hi", headers=headers)
    assert (answer.status_code, refused.status_code) == (200, 400)


@pytest.mark.parametrize("asked", [chat(model="gpt-4"), completion(model="gpt-4"), chat(model="\n")])
async def test_unknown_model(within: Connect, asked: tuple[str, dict[str, Any]]) -> None:
    async with within(door := FakeDoor()) as http:
        answer = await http.post(asked[0], json=asked[1])
        assert (await http.get("/v1/models/gpt-4")).status_code == 404
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert not door.asked


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (completion(prompt=["a", "b" * N_CTX]), "prompt"),
        (completion(prompt=[[65] * N_CTX], stream=True), "prompt"),
        (one_message(content="b" * (N_CTX - len("<user>"))), "messages"),
    ],
    ids=["texts", "ids", "chat"],
)
async def test_prompt_too_long(within: Connect, asked: tuple[str, dict[str, Any]], param: str) -> None:
    async with within(door := FakeDoor()) as http:
        answer = await http.post(asked[0], json=asked[1])
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "exceed_context_size_error", param)
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (N_CTX, N_CTX)
    assert not door.asked


async def test_longest_prompt(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.post(COMPLETIONS, json={"prompt": "b" * (N_CTX - 1), "max_tokens": 1})
    assert answer.json()["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [("GET", "/nowhere", 404), ("GET", CHAT, 405), ("DELETE", "/health", 405), ("OPTIONS", CHAT, 405)],
)
async def test_no_such_route(within: Connect, method: str, url: str, status: int) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.request(method, url)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert url in error["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_dead_engine(within: Connect, stream: bool) -> None:
    async with within(door := FakeDoor()) as http:
        door.die("the engine died")
        answer = await http.post(CHAT, json={"messages": HI, "stream": stream})
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")


async def test_a_bug_of_ours_has_the_shape_too(within: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    door = FakeDoor()
    monkeypatch.setattr(door, "submit", lambda *_: 1 / 0)
    app = create_app(door, byte_text(), EngineSettings(), ServerSettings())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://toy") as http:
        answer = await http.post(CHAT, json={"messages": HI})
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")


async def test_a_token_without_a_row_in_the_embedding_is_named(within: Connect) -> None:
    """A tokenizer may have more tokens than the model."""
    door = FakeDoor()
    door.facts = structs.replace(door.facts, vocab_size=80)
    async with within(door) as client:
        for path, body in (completion(prompt="My"), chat()):
            answer = await client.post(path, json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, "prompt" if path == COMPLETIONS else "messages")
            assert "the model's embedding has 80 rows only" in error["message"]
    assert not door.asked
