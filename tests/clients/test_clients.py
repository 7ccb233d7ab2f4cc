"""What clients in use make of the server: the same of an answer whose chat was parked as of any other.

Each client is a process, which talks to a real server and tells what it made of it (python/, node/). Those whose
packages aren't there are skipped; `make test-clients` installs them all.
"""

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from parkway.config import Notices
from tests.clients.door import DEATH, PARKED, parks_of
from tests.clients.served import serving

HERE, ROOT = Path(__file__).parent, Path(__file__).parent.parent.parent
NODE = HERE / "node"
PYTHON = os.environ.get("CLIENTS_PYTHON", sys.executable)
"""The interpreter that has the clients' packages; `make test-clients` names one."""
TEXT: dict[str, Any] = {"text": "Grüße aus dem Park, 日本 🌳!", "calls": [], "thought": None, "end": "stop"}
CALL: dict[str, Any] = {
    "text": "I look.",
    "calls": [{"name": "dir", "arguments": {"at": "/é"}}],
    "thought": "hm, so",
    "end": "tool_calls",
}
WHEN = ("never", *PARKED)


class Program(NamedTuple):
    """A module of python/ or a file of node/; the package that it needs; the clients that it tells of."""

    program: str
    package: str
    clients: tuple[str, ...]


PROGRAMS = (
    Program("openai_client", "openai", ("openai chat", "openai responses")),
    Program("anthropic_client", "anthropic", ("anthropic",)),
    Program("httpx_sse_client", "httpx_sse", ("httpx-sse",)),
    Program("langchain_client", "langchain_openai", ("langchain chat", "langchain responses")),
    Program("litellm_client", "litellm", ("litellm openai", "litellm hosted_vllm", "litellm anthropic")),
    Program("openai.mjs", "openai", ("openai node chat", "openai node responses")),
    Program("anthropic.mjs", "@anthropic-ai/sdk", ("anthropic node",)),
    Program("ai.mjs", "ai", ("ai openai-compatible", "ai anthropic")),
    Program("langchain.mjs", "@langchain/openai", ("langchain node",)),
    Program("eventsource.mjs", "eventsource-parser", ("eventsource-parser",)),
)
CLIENTS = {client: program for program in PROGRAMS for client in program.clients}
every_client = pytest.mark.parametrize("client", CLIENTS)


@cache
def has(package: str) -> bool:
    if sys.executable == PYTHON:
        return importlib.util.find_spec(package) is not None
    found = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
    return subprocess.run([PYTHON, "-c", found], check=False).returncode == 0


def command_of(program: Program) -> list[str]:
    """Skips the test if there is nothing to run it."""
    if program.program.endswith(".mjs"):
        node = shutil.which("node")
        if "CLIENTS_PYTHON" not in os.environ or node is None or not (NODE / "node_modules" / program.package).exists():
            pytest.skip(f"{program.package} for Node: make test-clients")
        return [node, str(NODE / program.program)]
    if not has(program.package):
        pytest.skip(f"{program.package} isn't installed: make test-clients")
    return [PYTHON, "-m", f"tests.clients.python.{program.program}"]


class Told(NamedTuple):
    """What a program told of its clients; which of the door's chats were cancelled, and which were still open."""

    clients: dict[str, Any]
    cancelled: int
    open: int


@cache
def told_by(program: Program, notices: Notices = "comments") -> Told:
    return asyncio.run(_run(command_of(program), len(program.clients), notices))


async def _run(command: list[str], clients: int, notices: Notices) -> Told:
    async with serving(notices=notices) as (door, _, url):
        process = await asyncio.create_subprocess_exec(*command, url, cwd=ROOT, stdout=subprocess.PIPE)
        stdout, _ = await process.communicate()
        assert process.returncode == 0
        while len(door.cancelled) < clients:
            await asyncio.sleep(0.001)
        return Told(json.loads(stdout), len(door.cancelled), len(door.open))


def made_by(client: str, scenario: str, notices: Notices = "comments") -> Any:
    return told_by(CLIENTS[client], notices).clients[client][scenario]


@every_client
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("how", ["stream", "whole"])
@pytest.mark.parametrize("what", ["text", "call"])
def test_an_answer_is_the_same_parked_or_not(client: str, what: str, how: str, when: str) -> None:
    made = made_by(client, f"{how} {what} {when}")
    expected = (TEXT if what == "text" else CALL) | {"parks": parks_of(what, when)}
    assert made.keys() >= {"text", "calls"}
    assert made == {name: expected[name] for name in made}


@pytest.mark.skipif("CLIENTS_PYTHON" not in os.environ, reason="takes as long again: make test-clients")
@every_client
@pytest.mark.parametrize("what", ["text", "call"])
def test_notices_in_chunks_change_nothing(client: str, what: str) -> None:
    for when in WHEN:
        scenario = f"stream {what} {when}"
        assert made_by(client, scenario, "chunks") == made_by(client, scenario)


@every_client
def test_an_object_of_a_schema(client: str) -> None:
    assert made_by(client, "typed") == {"x": 3, "why": "é"}


@every_client
@pytest.mark.parametrize("how", ["stream", "whole"])
def test_a_refusal_is_an_error_with_its_reason(client: str, how: str) -> None:
    made = made_by(client, f"{how} refused")
    assert made["status"] == 400
    assert "exceeds the available context size" in made["error"] or "prompt is too long" in made["error"]


@every_client
@pytest.mark.parametrize("how", ["stream", "whole"])
def test_a_failure_is_an_error_with_its_reason(client: str, how: str) -> None:
    made = made_by(client, f"{how} died")
    assert DEATH in made["error"]
    assert how == "stream" or made["status"] == 500


@every_client
def test_a_stream_that_is_left_frees_the_slot(client: str) -> None:
    told = told_by(CLIENTS[client])
    assert told.clients[client]["left"] == "G"
    assert (told.cancelled, told.open) == (len(CLIENTS[client].clients), 0)


def test_chats_are_parked_as_often_as_they_should_be() -> None:
    assert [parks_of("text", when) for when in WHEN] == [0, 1, 1, 8]
