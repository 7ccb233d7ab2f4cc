"""The server as a process: its start-up line, signals, the engine's death, a taken port."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from parkway.api.server import listen, serve
from parkway.config import EngineSettings, ServerSettings
from parkway.errors import BadFile, BadSetting

HI = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
Start = Callable[..., tuple["subprocess.Popen[str]", str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a server over the fake door; gives the process and its address once it says that it serves."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> tuple["subprocess.Popen[str]", str]:
        command = [sys.executable, "-m", "tests.api.served", *arguments]
        root = Path(__file__).parents[2]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=root)
        started.append(process)
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("parkway: serving toy at http://127.0.0.1:"), line
        return process, line.split()[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_sigterm_finishes_what_runs(start: Start) -> None:
    process, url = start("x" * 100, "0.01", "30")
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=HI) as answer:
        pieces = answer.iter_text()
        text = next(pieces) + next(pieces)
        process.send_signal(signal.SIGTERM)
        while (health := httpx.get(f"{url}/health")).status_code == 200:
            pass
        assert (health.status_code, health.json()) == (503, {"status": "draining"})
        refused = httpx.post(f"{url}/v1/chat/completions", json=HI)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert refused.headers["retry-after"] == "5"
        text += "".join(pieces)
    assert text.endswith("data: [DONE]\n\n")
    assert text.count('"content":"x"') == 100
    assert process.wait() == 0


def test_what_outlives_the_drain_gets_an_error(start: Start) -> None:
    process, url = start("x" * 250, "1", "0.2")
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=HI) as answer:
        pieces = answer.iter_text()
        text = next(pieces)
        process.send_signal(signal.SIGTERM)
        text += "".join(pieces)
    last = json.loads(text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert last["error"]["code"] == "shutting_down"
    assert process.wait() == 0


def test_second_sigterm_exits_at_once(start: Start) -> None:
    process, url = start("x" * 250, "1", "600")
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=HI) as answer:
        pieces = answer.iter_text()  # dropping it would hang up
        next(pieces)
        process.send_signal(signal.SIGTERM)
        while httpx.get(f"{url}/health").status_code == 200:
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM


def test_idle_server_ends_on_sigint(start: Start) -> None:
    process, _ = start("x", "0", "30")
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0


def test_engine_death_ends_the_server(start: Start) -> None:
    process, url = start("x" * 250, "1", "30", "the engine process was killed by SIGKILL")
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=HI) as answer:
        text = "".join(answer.iter_text())
    assert "killed by SIGKILL" in text
    assert process.wait() == 1
    assert process.stderr is not None
    assert process.stderr.read() == "parkway: the engine process was killed by SIGKILL\n"


def test_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BadSetting, match=f"--port: .*:{port} is taken"):
            serve(Path("nothing.gguf"), EngineSettings(), ServerSettings(port=port))


def test_host_that_is_no_address() -> None:
    with pytest.raises(BadSetting, match=r"--host: no such host\.invalid is not an address"):
        listen("no such host.invalid", 0)


@pytest.mark.parametrize("content", [None, b"", b"GGUF", b"x" * 100])
def test_bad_file(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadFile, match=r"model\.gguf"):
        serve(path, EngineSettings(), ServerSettings(port=0))
