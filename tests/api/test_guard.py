"""Who may ask: API keys, web pages of other origins, sizes of bodies. The layers cost a streamed token nothing."""

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message, Scope

from parkway.api.app import create_app
from parkway.config import EngineSettings, ServerSettings
from parkway.errors import BadSetting
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor, byte_text

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
KEYS = ("first-key", "second, third-key")
PAGE = "https://page.example"


@pytest.mark.parametrize("key", ["first-key", "second", "third-key"])
@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
async def test_any_key_in_either_header(within: Connect, key: str, header: str) -> None:
    value = f"Bearer {key}" if header == "authorization" else key
    async with within(FakeDoor("abc"), api_key=KEYS) as http:
        assert (await http.post(CHAT, json=HI, headers={header: value})).status_code == 200
        other = {"authorization": "Bearer a gateway's own"} if header == "x-api-key" else {"x-api-key": "another's"}
        assert (await http.post(CHAT, json=HI, headers={header: value} | other)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong-key"},
        {"authorization": "Bearer "},
        {"authorization": "Basic first-key"},
        {"authorization": "first-key"},
        {"authorization": "Bearer first-ke"},
        {"x-api-key": "first-key2"},
        {"x-api-key": ""},
        {"x-api-key": "second, third-key"},
    ],
    ids=str,
)
async def test_without_a_valid_key(within: Connect, headers: dict[str, str]) -> None:
    door = FakeDoor("abc")
    async with within(door, api_key=KEYS) as http:
        refused = await http.post(CHAT, json=HI, headers=headers)
        for path in ("/metrics", "/props", "/slots", "/v1/models", "/openapi.json", "/nothing"):
            assert (await http.get(path, headers=headers)).status_code == 401
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json() == {
        "error": {
            "message": "this server needs a valid API key",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        }
    }
    assert not door.asked


async def test_anthropic_clients_get_their_own_error(within: Connect) -> None:
    async with within(FakeDoor("abc"), api_key=KEYS) as http:
        refused = await http.post(MESSAGES, json=HI, headers={"x-api-key": "wrong-key"})
        answered = await http.post(MESSAGES, json=HI, headers={"x-api-key": "second"})
    assert refused.status_code == 401
    assert refused.json()["error"] == {"type": "authentication_error", "message": "this server needs a valid API key"}
    assert refused.json()["request_id"] == refused.headers["request-id"] == refused.headers["x-request-id"]
    assert answered.status_code == 200


@pytest.mark.parametrize("path", ["/", "/health", "/v1/health"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_needs_no_key(within: Connect, path: str, method: str) -> None:
    async with within(FakeDoor(), api_key=KEYS) as http:
        assert (await http.request(method, path)).status_code == 200


async def test_without_keys_everybody_may_ask(within: Connect) -> None:
    async with within(FakeDoor("abc")) as http:
        assert (await http.post(CHAT, json=HI, headers={"authorization": "Bearer none"})).status_code == 200


async def test_a_chat_is_its_keys_by_a_fingerprint_or_its_addresss(within: Connect) -> None:
    door = FakeDoor("abc")
    async with within(door, api_key=KEYS) as http:
        await http.post(CHAT, json=HI, headers={"x-api-key": "second"})
    async with within(door) as http:
        await http.post(CHAT, json=HI, headers={"x-api-key": "second"})
    fingerprint = hashlib.sha256(b"second").hexdigest()[:8]
    assert [request.client for request in door.asked] == [fingerprint, "127.0.0.1"]


async def test_pages_of_other_origins_may_not_ask_by_default(within: Connect) -> None:
    async with within(FakeDoor("abc")) as http:
        answer = await http.post(CHAT, json=HI, headers={"origin": PAGE})
        preflight = await http.options(CHAT, headers={"origin": PAGE, "access-control-request-method": "POST"})
    assert "access-control-allow-origin" not in answer.headers
    assert preflight.status_code == 405


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ("*", PAGE, "*"),
        (f"https://else.example, {PAGE}", PAGE, PAGE),
        ("https://else.example", PAGE, None),
        ("localhost", "http://localhost:5173", "http://localhost:5173"),
        ("localhost", "http://127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("localhost", "http://localhost.page.example", None),
        (f"localhost,{PAGE}", PAGE, PAGE),
    ],
)
async def test_origins(within: Connect, origins: str, origin: str, allowed: str | None) -> None:
    """A preflight needs no key; what it allows includes the header that the key goes in. Refusals can be read too."""
    asked = {"origin": origin, "access-control-request-method": "POST"}
    asked["access-control-request-headers"] = "authorization,content-type"
    async with within(FakeDoor("abc"), api_key=KEYS, cors_origins=origins) as http:
        preflight = await http.options(CHAT, headers=asked)
        answer = await http.post(CHAT, json=HI, headers={"origin": origin, "x-api-key": "second"})
        refused = await http.post(CHAT, json=HI, headers={"origin": origin})
    told = [each.headers.get("access-control-allow-origin") for each in (preflight, answer, refused)]
    assert told == [allowed] * 3
    assert "access-control-allow-credentials" not in answer.headers
    assert (preflight.status_code, answer.status_code, refused.status_code) == (200 if allowed else 400, 200, 401)
    if allowed:
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


LARGEST = 600


async def pieces(size: int) -> AsyncIterator[bytes]:
    """A body without a length."""
    body = padded(size)
    for at in range(0, size, 100):
        yield body[at : at + 100]


def padded(size: int) -> bytes:
    body = b'{"prompt":"Hi","max_tokens":1,"user":"'
    return body + b"x" * (size - len(body) - 2) + b'"}'


@pytest.mark.parametrize("path", ["/v1/completions", MESSAGES])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large(live: Connect, path: str, chunked: bool) -> None:
    door = FakeDoor("abc")
    async with live(door, max_body_bytes=LARGEST) as http:
        content = pieces(LARGEST + 1) if chunked else padded(LARGEST + 1)
        refused = await http.post(path, content=content)
        again = await http.get("/health")
    assert refused.status_code == 413
    error = refused.json()["error"]
    assert error["message"] == "the body is larger than 600 bytes, the limit of this server"
    if path == MESSAGES:
        assert error["type"] == "request_too_large"
    else:
        assert error["code"] == "request_too_large"
    assert not door.asked
    assert again.status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_as_large_as_may_be(live: Connect, chunked: bool) -> None:
    async with live(FakeDoor("abc"), max_body_bytes=LARGEST) as http:
        answer = await http.post("/v1/completions", content=pieces(LARGEST) if chunked else padded(LARGEST))
    assert answer.status_code == 200


async def test_a_large_upload_is_read_to_its_end_so_that_the_client_sees_why(live: Connect) -> None:
    async with live(FakeDoor("abc"), max_body_bytes=LARGEST) as http:
        refused = await http.post("/v1/completions", content=b"x" * 8_000_000)
    assert refused.status_code == 413


async def test_what_follows_the_start_of_a_stream_passes_no_layer() -> None:
    """Each layer between would cost every token a call."""
    door = FakeDoor("abc")
    settings = ServerSettings(api_key=("k",), cors_origins="*")
    app = create_app(door, byte_text(), EngineSettings(), settings)
    body = b'{"prompt":"Hi","stream":true}'
    headers = [(b"x-api-key", b"k"), (b"origin", PAGE.encode()), (b"content-length", b"%d" % len(body))]
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "headers": headers,
        "query_string": b"",
    }
    callers: list[str] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            callers.append(sys._getframe(1).f_code.co_qualname)
        else:
            assert {b"x-request-id", b"access-control-allow-origin"} <= dict(message["headers"]).keys()

    asked = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Message:
        for message in asked:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    await app(scope, receive, send)
    assert callers == ["StreamedAnswer._stream"] * 4 + ["StreamedAnswer.__call__"]


@pytest.mark.parametrize("field", ["max_body_bytes", "max_queue"])
@pytest.mark.parametrize("value", [-1, 2**31])
def test_limits_have_limits(field: str, value: int) -> None:
    with pytest.raises(BadSetting, match=f"--{field.replace('_', '-')}: must be between 0 and"):
        ServerSettings(**{field: value})  # type: ignore[arg-type]
