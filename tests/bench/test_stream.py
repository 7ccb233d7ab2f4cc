"""The light client, against a socket that plays the server."""

import json
import socket
from collections.abc import Iterator

import pytest

from parkway.bench.stream import Stream

WHOLE = b'HTTP/1.1 200 OK\r\n\r\ndata: {"choices":[{"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def connected(listener: socket.socket) -> tuple[Stream, socket.socket]:
    stream = Stream(listener.getsockname(), "/v1/completions", {"prompt": [1, 2]})
    return stream, listener.accept()[0]


def test_it_asks_for_a_stream(listener: socket.socket) -> None:
    stream, server = connected(listener)
    with server:
        head, _, body = server.recv(4096).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body) == {"prompt": [1, 2], "stream": True}
    stream.close()


def test_drain_takes_what_is_there_and_does_not_wait(listener: socket.socket) -> None:
    stream, server = connected(listener)
    stream.drain()
    assert not stream.received
    with server:
        server.recv(4096)
        server.sendall(WHOLE)
        stream.wait()
        stream.drain()
        assert stream.received == WHOLE
        assert not stream.ended
    stream.finish()
    stream.drain()
    assert stream.ended


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        WHOLE.removesuffix(b"data: [DONE]\n\n"),
        WHOLE.replace(b"length", b"stop"),
        WHOLE.replace(b"200 OK", b"503 Service Unavailable"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for(listener: socket.socket, answer: bytes) -> None:
    stream, server = connected(listener)
    with server:
        server.recv(4096)
        server.sendall(answer)
    with pytest.raises(RuntimeError, match="the server answered"):
        stream.finish()
