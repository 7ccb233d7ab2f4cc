"""The chat in the terminal, driven over pipes: what it shows and asks, parked, cancelled, refused."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import pytest

from parkway import cli
from parkway.chat import Event, events

SECONDS = 60


class FakeServer:
    """Answers each question with the next of `answers`, frames of a stream. `asked` are the bodies.

    After the last frame of one that does not end in [DONE] it says nothing until its client hangs up (`left` is set).
    """

    def __init__(self) -> None:
        self.answers: list[list[str]] = []
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.left = threading.Event()
        self.url = ""


def answering(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/v1/models"
            fake.keys.add(self.headers.get("Authorization"))
            self.begin(200)
            self.wfile.write(b'{"data": [{"id": "fake"}]}')

        def do_POST(self) -> None:
            fake.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if not fake.answers:
                self.begin(400)
                self.wfile.write(b'{"error": {"message": "no more answers"}}')
                return
            frames = fake.answers.pop(0)
            self.begin(200)
            self.wfile.write("".join(f"{frame}\n\n" for frame in frames).encode())
            if frames[-1] != "data: [DONE]":
                self.connection.recv(1)
                fake.left.set()

        def begin(self, status: int) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    found = FakeServer()
    with ThreadingHTTPServer(("127.0.0.1", 0), answering(found)) as server:
        found.url = f"http://127.0.0.1:{server.server_address[1]}"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield found
        server.shutdown()
        serving.join()


def piece(**delta: str) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}"


def notice(**told: Any) -> str:
    return f"data: {json.dumps({'choices': [], 'parkway': told})}"


@contextmanager
def chatting(*arguments: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "parkway.cli", "chat", *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = os.environ | {"COLUMNS": "200"} | variables
    with subprocess.Popen(command, text=True, bufsize=1, env=environment, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def said(lines: str, *arguments: str, **variables: str) -> str:
    """All that is shown after the first line, when these lines are typed."""
    with chatting(*arguments, **variables) as process:
        out, err = process.communicate(lines, timeout=SECONDS)
    assert process.returncode == 0, err
    assert err == ""
    first, _, rest = str(out).partition("\n")
    assert first.startswith("fake at http://127.0.0.1:")
    return rest


def read_until(stream: IO[str], text: str) -> str:
    seen = ""
    while not seen.endswith(text):
        piece = stream.read(1)
        assert piece, f"it ended after {seen!r}"
        seen += piece
    return seen


def test_a_chat_that_is_parked_shows_it(fake: FakeServer) -> None:
    fake.answers.append(
        [
            piece(role="assistant"),
            piece(reasoning="Hm."),
            piece(content="Hel"),
            ": preempted",
            notice(state="preempted", ahead=2, waited_ms=0, index=0),
            ": preempt-keepalive",
            ": resumed",
            notice(state="resumed", ahead=0, waited_ms=1200, index=0),
            ": recomputed",
            piece(content="lo"),
            "data: [DONE]",
        ]
    )
    shown = said("Hi\n/quit\nnever asked\n", fake.url)
    assert re.fullmatch(r"Hm\.\nHel\nparked, 2 ahead\nback after \d+\.\d s\nlo\n", shown)
    [asked] = fake.asked
    assert asked["messages"] == [{"role": "user", "content": "Hi"}]
    assert (asked["model"], asked["stream"], asked["notices"]) == ("fake", True, "chunks")


def test_a_conversation_remembers_until_it_is_cleared(fake: FakeServer) -> None:
    fake.answers += [[piece(content=text), "data: [DONE]"] for text in ("one", "two", "three")]
    shown = said("a\n\nb\n/clear\nc\n", f"{fake.url}/v1", "--system", "Be brief.", PARKWAY_API_KEY="secret")
    assert shown == "one\ntwo\nthree\n"
    told = [[(each["role"], each["content"]) for each in asked["messages"]] for asked in fake.asked]
    system, first = ("system", "Be brief."), ("user", "a")
    assert told == [[system, first], [system, first, ("assistant", "one"), ("user", "b")], [system, ("user", "c")]]
    assert fake.keys == {"Bearer secret"}


def test_a_failure_is_told_and_the_chat_goes_on(fake: FakeServer) -> None:
    fake.answers.append([piece(content="par"), 'data: {"error": {"message": "the engine died"}}', "data: [DONE]"])
    assert said("a\nb\n", fake.url) == "par\nfailed: the engine died\nfailed: 400 no more answers\n"
    assert len(fake.asked[1]["messages"]) == 3


def test_ctrl_c_ends_the_answer_and_not_the_chat(fake: FakeServer) -> None:
    fake.answers += [[piece(content="and so on")], [piece(content="yes"), "data: [DONE]"]]
    with chatting(fake.url) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write("a\n")
        read_until(process.stdout, "and so on")
        process.send_signal(signal.SIGINT)
        read_until(process.stdout, "\ncancelled\n")
        assert fake.left.wait(SECONDS)
        process.stdin.write("b\n")
        read_until(process.stdout, "yes\n")
        process.stdin.close()
        assert process.wait(SECONDS) == 0
    assert [message["content"] for message in fake.asked[1]["messages"]] == ["a", "and so on", "b"]


def test_without_a_server_it_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chat", "http://127.0.0.1:9"]) == 2
    assert capsys.readouterr().err.startswith("parkway: http://127.0.0.1:9: no server answers there")


def test_a_server_of_its_own_ends_with_the_chat(smollm2: Path) -> None:
    with chatting(str(smollm2), "--ctx-size", "512") as process:
        out, err = process.communicate("/quit\n", timeout=SECONDS)
    assert process.returncode == 0, err
    url = re.match(rf"{smollm2.stem} at (\S+)\. ", out)
    assert url
    assert cli.main(["chat", url[1]]) == 2


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\r\n\r\n", [Event("data", "a"), Event("data", "b")]),
        (b": preempted 1\n\n:\n\n", [Event("comment", "preempted 1"), Event("comment", "")]),
        (b"event: x\nid: 3\ndata:a\ndata: b\n\n", [Event("data", "a\nb")]),
        (b"data: not ended\n", []),
        ("data: é\n\n".encode(), [Event("data", "é")]),
    ],
    ids=str,
)
def test_events(stream: bytes, expected: list[Event]) -> None:
    assert list(events(stream.splitlines(keepends=True))) == expected
