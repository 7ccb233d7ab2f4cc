"""Open WebUI: what its own clients get of a model of the server, through its backend.

Starts Open WebUI from the interpreter's own environment, which takes a minute, without users, hubs and embeddings.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from tests.clients.python.scenarios import MODEL, SCHEMA, TOOL, Made, main

HOST = "127.0.0.1"
SETTINGS = {
    "WEBUI_AUTH": "False",
    "OFFLINE_MODE": "True",
    "HF_HUB_OFFLINE": "1",
    "ENABLE_OLLAMA_API": "False",
    "OPENAI_API_KEY": "none",
    "RAG_EMBEDDING_ENGINE": "openai",  # else it fetches a model for embeddings
    "AUDIO_STT_ENGINE": "openai",
    "WEBUI_SECRET_KEY": "test",
}


class Failed(Exception):
    """What Open WebUI told in place of an answer."""

    def __init__(self, told: Any, status: int) -> None:
        super().__init__(json.dumps(told, ensure_ascii=False))
        self.status_code = status


class Chats:
    """Its API for chats, whose streams pass through its backend."""

    def __init__(self, address: str) -> None:
        signed_in = httpx.post(f"{address}/api/v1/auths/signin", json={"email": "", "password": ""}, timeout=30)
        key = {"Authorization": f"Bearer {signed_in.json()['token']}"}
        self._http = httpx.Client(base_url=address, headers=key, timeout=60)
        listed = self._http.get("/api/models").json()["data"]
        assert [model["id"] for model in listed] == [MODEL]

    def stream(self, say: str, *, tools: bool) -> Made:
        made: Made = {"text": "", "calls": [], "thought": None, "end": None}
        for chunk in self._chunks(say, tools):
            for choice in chunk["choices"]:
                _add(made, choice)
            if "preempt" in chunk:
                made["parks"] = chunk["preempt"]["parks"]
        for call in made["calls"]:
            call["arguments"] = json.loads(call["arguments"])
        return made

    def whole(self, say: str, *, tools: bool) -> Made:
        told = self._ask(_asked(say, tools))
        choice, message = told["choices"][0], told["choices"][0]["message"]
        calls = [each["function"] for each in message.get("tool_calls") or []]
        return {
            "text": message["content"],
            "calls": [{"name": call["name"], "arguments": json.loads(call["arguments"])} for call in calls],
            "thought": message.get("reasoning_content"),
            "end": choice["finish_reason"],
            "parks": told["preempt"]["parks"],
        }

    def typed(self, say: str) -> Any:
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
        told = self._ask(_asked(say, False) | {"response_format": form})
        return json.loads(told["choices"][0]["message"]["content"])

    def leave(self, say: str) -> str:
        for chunk in (chunks := self._chunks(say, False)):
            if text := chunk["choices"][0]["delta"].get("content"):
                chunks.close()
                return str(text)
        return ""

    def _chunks(self, say: str, tools: bool) -> Generator[Any]:
        asked = _asked(say, tools) | {"stream": True}
        with self._http.stream("POST", "/api/chat/completions", json=asked) as answer:
            if answer.status_code != 200:
                raise Failed(json.loads(answer.read()), answer.status_code)
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    chunk = json.loads(line.removeprefix("data: "))
                    if "error" in chunk:
                        raise Failed(chunk, 200)
                    yield chunk

    def _ask(self, asked: dict[str, Any]) -> Any:
        answer = self._http.post("/api/chat/completions", json=asked)
        if answer.status_code != 200:
            raise Failed(answer.json(), answer.status_code)
        return answer.json()


def _asked(say: str, tools: bool) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": say}]}
    return asked | ({"tools": [TOOL]} if tools else {})


def _add(made: Made, choice: Any) -> None:
    delta = choice["delta"]
    made["text"] += delta.get("content") or ""
    if "reasoning_content" in delta:
        made["thought"] = (made["thought"] or "") + delta["reasoning_content"]
    for call in delta.get("tool_calls", []):
        if call["index"] == len(made["calls"]):
            made["calls"].append({"name": call["function"]["name"], "arguments": ""})
        made["calls"][call["index"]]["arguments"] += call["function"]["arguments"]
    made["end"] = choice["finish_reason"] or made["end"]


@contextmanager
def open_webui(url: str) -> Iterator[str]:
    """Its address, once it answers. `url`: of the server that it shall use."""
    with socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    program = str(Path(sys.executable).with_name("open-webui"))
    with TemporaryDirectory() as folder:
        settings = {**os.environ, **SETTINGS, "DATA_DIR": folder, "OPENAI_API_BASE_URL": f"{url}/v1"}
        command = [program, "serve", "--host", HOST, "--port", str(port)]
        with subprocess.Popen(command, cwd=folder, env=settings, stdout=sys.stderr) as process:
            try:
                yield _ready(f"http://{HOST}:{port}", process)
            finally:
                process.terminate()


def _ready(address: str, process: "subprocess.Popen[bytes]") -> str:
    while process.poll() is None:
        try:
            if httpx.get(f"{address}/health", timeout=5).status_code == 200:
                return address
        except httpx.HTTPError:
            time.sleep(0.5)
    raise RuntimeError(f"Open WebUI ended with {process.returncode}")


if __name__ == "__main__":
    with open_webui(sys.argv[1]) as address:
        main({"open-webui": lambda _: Chats(address)})
