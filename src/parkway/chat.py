"""`parkway chat`: a chat in the terminal with a server of OpenAI's API, which shows when it is parked.

Knows nothing of models and engines; the server may be one that it starts itself.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rich.console import Console

from parkway.bench.served import command, served
from parkway.config import EngineSettings
from parkway.errors import ParkwayError, StartError

_HELP = "/clear begins anew, /quit or Ctrl-D ends, Ctrl-C ends an answer"
_TRIES_SECONDS = 10.0


class Event(NamedTuple):
    """What a stream tells: a comment, or the content of a data frame."""

    kind: str
    text: str


class ServerError(ParkwayError):
    pass


def run_with_server(path: Path, settings: EngineSettings, system: str) -> int:
    """Chats with a server of its own on a free port, which ends with the chat. Raises StartError."""
    with served(command(path, settings)) as server:
        host, port = server.address
        return run(f"http://{host}:{port}", system)


def run(url: str, system: str) -> int:
    """Chats until there is no more to read. Returns the exit code. Raises StartError if no server answers."""
    server, console = Server(url), Console(highlight=False)
    console.print(f"{server.model} at {url}. {_HELP}", style="dim", markup=False)
    chat = Chat(server, Screen(console), system)
    while (text := _asked()) is not None and text != "/quit":
        if text == "/clear":
            chat.clear()
        elif text:
            chat.say(text)
    return 0


def events(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events of a stream of server-sent events."""
    content: list[str] = []
    for line in lines:
        text = line.decode(errors="replace").rstrip("\r\n")
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if text.startswith(":"):
            yield Event("comment", value)
        elif name == "data":
            content.append(value)
        elif not text and content:
            yield Event("data", "\n".join(content))
            content.clear()


class Server:
    """A server of OpenAI's API by its address. `model`: what it calls its model."""

    def __init__(self, url: str) -> None:
        """Raises StartError."""
        parts = urlsplit(url)
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._address = parts.netloc
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        key = os.environ.get("PARKWAY_API_KEY")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        try:
            with self._asked("GET", "/v1/models", None, _TRIES_SECONDS) as answer:
                self.model: str = json.loads(answer.read())["data"][0]["id"]
        except (OSError, HTTPException, ServerError, ValueError, LookupError, TypeError) as error:
            raise StartError(f"{url}: no server answers there as OpenAI's would: {error}") from error

    def streamed(self, body: dict[str, Any]) -> Iterator[Event]:
        """The events of a chat's answer; to stop early, close the iterator. Raises ServerError, OSError."""
        with self._asked("POST", "/v1/chat/completions", body | {"model": self.model, "stream": True}) as answer:
            yield from events(answer)

    def _asked(self, method: str, path: str, body: Any, seconds: float | None = None) -> HTTPResponse:
        connection = self._kind(self._address, timeout=seconds)
        headers = self._headers | {"Connection": "close"}
        connection.request(method, self._prefix + path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            with answer:
                raise ServerError(f"{answer.status} {_complaint(answer.read().decode(errors='replace'))}")
        return answer


class Screen:
    """What is shown of an answer: its text, its thoughts dim, and dim lines for what happens to it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._kind = ""

    def show(self, kind: str, text: str) -> None:
        """A piece of "content", "reasoning" or "note"; each begins a line unless the last piece was of its kind."""
        if self._kind not in ("", kind):
            self._console.print()
        self._kind = kind
        style = None if kind == "content" else "dim"
        self._console.print(text, style=style, end="", markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """A line of its own."""
        self.end()
        self.show("note", text)

    def end(self) -> None:
        """Ends the line."""
        if self._kind:
            self._console.print()
        self._kind = ""


class Chat:
    """A conversation: what has been said, and what is said next."""

    def __init__(self, server: Server, screen: Screen, system: str) -> None:
        self._server = server
        self._screen = screen
        self._system = [{"role": "system", "content": system}] if system else []
        self._parked_at = 0.0
        self.clear()

    def clear(self) -> None:
        """Begins anew; the system prompt stays."""
        self.messages: list[dict[str, str]] = list(self._system)

    def say(self, text: str) -> None:
        """Shows the answer. One that is cut short stays in the conversation as far as it came."""
        self.messages.append({"role": "user", "content": text})
        pieces: list[str] = []
        stream = self._server.streamed({"messages": self.messages, "notices": "chunks"})
        try:
            for event in stream:
                self._take(event, pieces)
        except KeyboardInterrupt:
            self._screen.note("cancelled")
        except (OSError, HTTPException, ServerError, ValueError) as error:
            self._screen.note(f"failed: {error}")
        finally:
            with suppress(OSError):
                stream.close()  # type: ignore[attr-defined]
            self._screen.end()
        if pieces:
            self.messages.append({"role": "assistant", "content": "".join(pieces)})
        else:
            self.messages.pop()

    def _take(self, event: Event, pieces: list[str]) -> None:
        """Shows an event; what it adds to the answer goes to `pieces`. Raises ServerError."""
        if event.kind == "comment":
            self._happened(event.text.split(" ")[0])
        elif event.text != "[DONE]":
            told = json.loads(event.text)
            if "error" in told:
                raise ServerError(_complaint(event.text))
            notice = told.get("parkway") or {}
            if notice.get("state") == "preempted":
                self._screen.show("note", f", {notice.get('ahead', 0)} ahead")
            for choice in told.get("choices", ()):
                delta = choice.get("delta") or {}
                if thought := delta.get("reasoning") or delta.get("reasoning_content"):
                    self._screen.show("reasoning", thought)
                if content := delta.get("content"):
                    pieces.append(content)
                    self._screen.show("content", content)

    def _happened(self, what: str) -> None:
        if what == "preempted":
            self._parked_at = monotonic()
            self._screen.note("parked")
        elif what == "resumed":
            self._screen.note(f"back after {monotonic() - self._parked_at:.1f} s")


def _asked() -> str | None:
    """The next line; None at the end."""
    terminal = sys.stdin.isatty()
    if terminal:
        import readline  # noqa: F401 (input() gets line editing and history)
    try:
        return input("> " if terminal else "").strip()
    except EOFError:
        return None


def _complaint(body: str) -> str:
    """What an error's body says, in OpenAI's form or in any other."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return body.strip()[:200]
