"""What every client is asked for, and how what it made of the answers is told: as JSON, by a process of its own.

A client is a program that talks to the server at the address that it is given. What a model is asked says what the
scripted door shall do. Knows no client.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

MODEL = "toy"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["x", "why"],
    "additionalProperties": False,
}
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "dir", "description": "d", "parameters": PARAMETERS}}
TOO_LONG = "x" * 300
Made = dict[str, Any]
"""What a client made of an answer: `text`, `calls` with `name` and `arguments`, and what else it tells."""


class Client(Protocol):
    def stream(self, say: str, *, tools: bool) -> Made:
        """What a streamed answer amounts to. Raises what the client raises."""

    def whole(self, say: str, *, tools: bool) -> Made:
        """… of one that is not streamed."""

    def typed(self, say: str) -> Any:
        """The object of an answer that is held to SCHEMA."""

    def leave(self, say: str) -> str:
        """The first text of a stream, which is then left."""


def main(clients: Mapping[str, Callable[[str], Client]]) -> None:
    """Tells on stdout what each of the clients, by name, makes of every scenario."""
    url = sys.argv[1]
    print(json.dumps({name: _told(make(url)) for name, make in clients.items()}))


def _told(client: Client) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for what in ("text", "call"):
        for when in ("never", "first", "middle", "fourth"):
            say, tools = f"{what} {when}", what == "call"
            told[f"stream {say}"] = _attempt(client.stream, say, tools=tools)
            told[f"whole {say}"] = _attempt(client.whole, say, tools=tools)
    told["typed"] = _attempt(client.typed, "json fourth")
    for name, say in (("refused", TOO_LONG), ("died", "text dies")):
        told[f"stream {name}"] = _attempt(client.stream, say, tools=False)
        told[f"whole {name}"] = _attempt(client.whole, say, tools=False)
    told["left"] = _attempt(client.leave, "text stays")
    return told


def _attempt(ask: Callable[..., Any], say: str, **fields: bool) -> Any:
    try:
        return ask(say, **fields)
    except Exception as error:  # whatever a client raises is what it tells
        return {"error": str(error), "status": getattr(error, "status_code", None)}
