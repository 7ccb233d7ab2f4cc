"""What programs that check APIs say of the server: schemathesis by its own description, llm-comply by that of others.

Both are part of the packages of `make test-clients`.
"""

import asyncio
import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.clients.served import serving
from tests.clients.test_clients import PYTHON

HERE = Path(__file__).parent


def check(name: str, *arguments: str, path: str) -> "subprocess.CompletedProcess[str]":
    """The checker, run against a server of its own; `path` goes behind the server's address, as its last argument."""
    program = Path(PYTHON).parent / name
    if not program.exists():
        pytest.skip(f"{name} isn't installed: make test-clients")
    return asyncio.run(_run([str(program), *arguments], path))


async def _run(command: list[str], path: str) -> "subprocess.CompletedProcess[str]":
    with TemporaryDirectory() as folder:  # where schemathesis leaves what it found
        async with serving() as (_, _, url):
            running = await asyncio.create_subprocess_exec(*command, url + path, cwd=folder, stdout=subprocess.PIPE)
            stdout, _ = await running.communicate()
    return subprocess.CompletedProcess(command, running.returncode or 0, stdout.decode())


def test_answers_are_as_the_description_says() -> None:
    configuration = str(HERE / "schemathesis.toml")
    done = check("schemathesis", "--config-file", configuration, "run", "--no-color", path="/openapi.json")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("form", "otherwise"),
    [
        ("openai-chat", {"chat-image-input": "HTTP 400", "chat-error-handling": "HTTP 200"}),
        ("open-responses", {"image-input": "HTTP 400", "error-handling": "HTTP 200"}),
        ("anthropic", {"anth-image-input": "HTTP 400"}),
    ],
)
def test_answers_are_as_others_describe_them(form: str, otherwise: dict[str, str]) -> None:
    """`otherwise`: what is meant so, and docs/compatibility.md explains."""
    done = check("llm-comply", "--format", form, "--api-key", "none", "--model", "toy", "--json", "-u", path="/v1")
    results: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    failed = {each["id"]: each["errors"] for each in results if each["status"] == "failed"}
    assert {name: errors[0].partition(" (")[0] for name, errors in failed.items()} == otherwise, failed
    assert sum(each["status"] == "passed" for each in results) >= 6
