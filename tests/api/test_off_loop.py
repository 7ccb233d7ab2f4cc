"""Large texts are rendered and tokenised beside the event loop, which answers others meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from parkway.api.off_loop import LARGE, is_large
from parkway.text import ModelText
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor, byte_text
from tests.api.test_embeddings import EmbeddingDoor

LONG = "long words " * (LARGE // 8)
CHAT = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 1}
CHATS = (
    "/v1/chat/completions",
    "/v1/chat/completions/input_tokens",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/apply-template",
)
TOKENIZED = [
    *((url, CHAT) for url in CHATS if url != "/apply-template"),
    ("/v1/responses", {"input": LONG}),
    ("/v1/completions", {"prompt": LONG}),
    ("/v1/completions", {"prompt": ["few words"] * (LARGE // 8)}),
    ("/completion", {"prompt": LONG}),
    ("/completion", {"prompt": "few", "logit_bias": [[LONG, 1]]}),
    ("/infill", {"input_prefix": LONG, "input_suffix": ""}),
    ("/tokenize", {"content": LONG}),
    ("/tokenize", {"prompt": LONG}),
    ("/tokenize", {"content": LONG, "parse_special": False}),
    ("/v1/embeddings", {"input": LONG}),
    ("/embedding", {"input": LONG}),
]


class Loop:
    """Whether the event loop comes round while somebody waits for it, and which thread did so."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._own = threading.current_thread()
        self.came_round: list[bool] = []
        self.was_left: list[bool] = []

    def awaited_in(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def waits(*arguments: Any, **named: Any) -> Any:
            self.was_left.append(threading.current_thread() is not self._own)
            if any(is_large(each) for each in arguments):
                came = threading.Event()
                self._loop.call_soon_threadsafe(came.set)
                self.came_round.append(came.wait(0.5))
            return function(*arguments, **named)

        return waits


def watched(loop: Loop, monkeypatch: pytest.MonkeyPatch, part: str, *functions: str) -> ModelText:
    marks = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    text = byte_text(special=marks)
    for name in functions:
        of = getattr(text, part)
        monkeypatch.setattr(of, name, loop.awaited_in(getattr(of, name)))
    return text


async def post(within: Connect, text: ModelText, url: str, body: dict[str, Any]) -> None:
    async with within(EmbeddingDoor(), text) as http:
        answer = await http.post(url, json={"model": "nick"} | body)
    assert answer.status_code in (200, 400), answer.text
    assert answer.status_code == 200 or "context" in answer.text or "prompt is too long" in answer.text, answer.text


@pytest.mark.parametrize(("url", "body"), TOKENIZED)
async def test_the_loop_goes_round_while_a_large_text_is_tokenised(
    url: str, body: dict[str, Any], within: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop()
    await post(within, watched(loop, monkeypatch, "tokenizer", "encode", "encode_plain"), url, body)
    assert any(loop.was_left)
    assert all(loop.came_round)


@pytest.mark.parametrize("url", CHATS)
async def test_the_loop_goes_round_while_a_large_chat_is_rendered(
    url: str, within: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop()
    await post(within, watched(loop, monkeypatch, "template", "render"), url, CHAT)
    assert loop.came_round == [True]


@pytest.mark.parametrize("body", [{"tokens": [97] * (LARGE + 1)}])
async def test_the_loop_goes_round_while_many_tokens_are_decoded(
    body: dict[str, Any], within: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop()
    await post(within, watched(loop, monkeypatch, "tokenizer", "decode"), "/detokenize", body)
    assert loop.came_round == [True]


async def test_small_texts_stay_on_the_loop(within: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    text = watched(loop, monkeypatch, "tokenizer", "encode", "encode_plain")
    async with within(FakeDoor(), text) as http:
        await http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "few"}]})
        await http.post("/tokenize", json={"content": "few"})
    assert loop.was_left
    assert not any(loop.was_left)


@pytest.mark.parametrize(
    ("asked", "large"),
    [
        ("a" * LARGE, False),
        ("a" * (LARGE + 1), True),
        (["a" * LARGE, "b"], True),
        ([7] * LARGE, False),
        ([7] * (LARGE + 1), True),
        ([{"content": [{"text": "a" * LARGE}]}], True),
        ({"a" * (LARGE + 1): None}, True),
        (({"few": 1.5}, None, True), False),
    ],
)
def test_what_is_large(asked: Any, large: bool) -> None:
    assert is_large(asked) == large
