"""Embeddings over HTTP: every form of the input, the vectors' length, both encodings, and what is refused."""

import array
import base64
import math
from typing import Any

import pytest
from msgspec import structs
from openai import AsyncOpenAI

from parkway.config import RequestDefaults
from parkway.engine.door import Sink
from parkway.request import Output, Preempt, Request
from tests.api.conftest import Connect
from tests.api.fake import EOS, FakeDoor, byte_text

URL = "/v1/embeddings"
OURS = ("/embedding", "/embeddings")


class EmbeddingDoor(FakeDoor):
    """Embeds a prompt as its first token, 4, 3 and 0."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.facts = structs.replace(self.facts, embedding_width=4)

    def submit(self, request: Request, sink: Sink) -> None:
        embedding = array.array("f", [request.prompt[0], 4, 3, 0]).tobytes()

        def embedded(output: Output) -> None:
            sink(structs.replace(output, embedding=embedding) if output.finish_reason == "length" else output)

        super().submit(request, embedded)


def unit(*numbers: float) -> list[float]:
    length = math.sqrt(sum(each * each for each in numbers))
    return array.array("f", [each / length for each in numbers]).tolist()


async def post(
    within: Connect, door: FakeDoor, url: str = URL, settings: dict[str, Any] | None = None, **body: Any
) -> Any:
    async with within(door, **(settings or {})) as http:
        answer = await http.post(url, json=body)
        return answer.json() | {"status": answer.status_code} if url == URL else answer.json()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("ab", [b"ab"]),
        ([97, 98], [b"ab"]),
        (["ab", "c"], [b"ab", b"c"]),
        ([[97, 98], [99]], [b"ab", b"c"]),
        (["ab", [99]], [b"ab", b"c"]),
    ],
)
async def test_inputs(within: Connect, asked: Any, expected: list[bytes]) -> None:
    door = EmbeddingDoor(preempt=Preempt(1, 0, 20))
    answer = await post(within, door, input=asked, user="me", model="nick")
    tokens, count = sum(map(len, expected)), len(expected)
    assert answer == {
        "status": 200,
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": unit(text[0], 4, 3, 0)}
            for index, text in enumerate(expected)
        ],
        "model": "nick",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "preempt": {"parks": count, "recomputes": 0, "parked_ms": 20 * count},
    }
    assert [bytes(each.prompt) for each in door.asked] == expected
    assert {(each.sampling.max_tokens, each.sampling.embed) for each in door.asked} == {(0, "last")}


async def test_base64_is_the_same_numbers_and_what_openais_client_reads(live: Connect) -> None:
    async with live(EmbeddingDoor()) as http:
        packed = (await http.post(URL, json={"input": "ab", "encoding_format": "base64"})).json()
        async with AsyncOpenAI(base_url=f"{http.base_url}/v1", api_key="none") as client:
            read = await client.embeddings.create(model="toy", input=["ab", "c"])
            plain = await client.embeddings.create(model="toy", input=["ab", "c"], encoding_format="float")
    assert [each.embedding for each in read.data] == [each.embedding for each in plain.data]
    assert [each.embedding for each in plain.data] == [unit(97, 4, 3, 0), unit(99, 4, 3, 0)]
    assert base64.b64decode(packed["data"][0]["embedding"]) == array.array("f", unit(97, 4, 3, 0)).tobytes()
    assert (plain.usage.prompt_tokens, plain.usage.total_tokens, plain.model) == (3, 3, "toy")


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
async def test_fewer_dimensions_have_length_1_again(within: Connect, dimensions: int) -> None:
    answer = await post(within, EmbeddingDoor(), input="a", dimensions=dimensions)
    [found] = answer["data"]
    assert found["embedding"] == unit(*[97, 4, 3, 0][:dimensions])


async def test_a_vector_of_nothing_stays_one(within: Connect) -> None:
    answer = await post(within, EmbeddingDoor(), input=[0], dimensions=1)
    assert answer["data"][0]["embedding"] == [0]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "a", "dimensions": 5}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "embd_normalize": -1}, "embd_normalize"),
        ({"input": "a", "model": "other"}, "model"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": [257]}, "input"),
        ({"input": "a" * 300}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({}, "input"),
    ],
    ids=lambda each: str(each)[:40],
)
async def test_refused(within: Connect, body: dict[str, Any], param: str) -> None:
    door = EmbeddingDoor()
    answer = await post(within, door, **body)
    assert (answer["status"], answer["error"]["param"]) == (404 if param == "model" else 400, param)
    assert not door.asked


@pytest.mark.parametrize("url", OURS)
async def test_llama_servers_own(within: Connect, url: str) -> None:
    expected = [{"index": 0, "embedding": [unit(97, 4, 3, 0)]}, {"index": 1, "embedding": [unit(98, 4, 3, 0)]}]
    assert await post(within, EmbeddingDoor(), url, input=["a", "b"]) == expected
    assert await post(within, EmbeddingDoor(), url, content=["a", "b"]) == expected
    error = (await post(within, EmbeddingDoor(), url, input="a", dimensions=5))["error"]
    assert (error["code"], error["param"]) == (400, "dimensions")


@pytest.mark.parametrize("url", [URL, *OURS])
async def test_an_engine_that_dies(within: Connect, url: str) -> None:
    class Dying(EmbeddingDoor):
        def submit(self, request: Request, sink: Sink) -> None:
            super().submit(request, sink)
            self.die()

    error = (await post(within, Dying(paced=True), url, input="a"))["error"]
    assert error["message"] == "the engine process was killed by SIGKILL"


@pytest.mark.parametrize(
    ("said", "setting", "pooling"),
    [
        *((None, "auto", "last"), (0, "auto", "last"), (1, "auto", "mean"), (3, "auto", "last")),
        *((3, "mean", "mean"), (1, "last", "last"), (2, "mean", "mean"), (2, "auto", None), (4, "auto", None)),
    ],
)
async def test_pooling_is_as_the_file_says_unless_told(
    within: Connect, said: int | None, setting: str, pooling: str | None
) -> None:
    metadata = {} if said is None else {"toy.pooling_type": said}
    async with within(door := EmbeddingDoor(), byte_text(more=metadata), pooling=setting) as http:
        answer = await http.post(URL, json={"input": "a"})
    assert [each.sampling.embed for each in door.asked] == ([pooling] if pooling else [])
    if pooling is None:
        assert answer.status_code == 400
        assert "pooling" in answer.json()["error"]["message"]


async def test_a_file_may_want_an_end_behind_texts_but_not_behind_ids(within: Connect) -> None:
    text = byte_text(more={"tokenizer.ggml.add_eos_token": True})
    async with within(door := EmbeddingDoor(), text) as http:
        await http.post(URL, json={"input": ["a", "b<|im_end|>", [99]]})
        await http.post("/v1/completions", json={"prompt": "a", "max_tokens": 0})
    assert [each.prompt for each in door.asked] == [[97, EOS], [98, EOS], [99], [97]]


async def test_no_cache_prompt_computes_all(within: Connect) -> None:
    door = EmbeddingDoor()
    await post(within, door, settings={"defaults": RequestDefaults(cache_prompt="off")}, input="a")
    assert [each.sampling.cache_prompt for each in door.asked] == [False]
