"""httpx-sse, with nothing between it and the events of a chat."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
from httpx_sse import connect_sse

from tests.clients.python.scenarios import MODEL, SCHEMA, TOOL, Made, main

_CHAT = "/v1/chat/completions"


class Refused(Exception):
    """The server answered with an error, before its stream or within it."""

    def __init__(self, status_code: int, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.status_code = status_code


class Events:
    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)

    def stream(self, say: str, *, tools: bool) -> Made:
        message: Made = {"text": "", "calls": [], "thought": ""}
        for choice in self._choices(_asked(say, tools)):
            delta, message["end"] = choice["delta"], choice["finish_reason"]
            message["text"] += delta.get("content") or ""
            message["thought"] += delta.get("reasoning_content") or ""
            for piece in delta.get("tool_calls", []):
                if "id" in piece:
                    message["calls"].append({"name": piece["function"]["name"], "arguments": ""})
                message["calls"][piece["index"]]["arguments"] += piece["function"].get("arguments", "")
        return _made(message)

    def whole(self, say: str, *, tools: bool) -> Made:
        body = self._post(_asked(say, tools))
        message = body["choices"][0]["message"]
        calls = [dict(each["function"]) for each in message.get("tool_calls", [])]
        thought, end = message.get("reasoning_content"), body["choices"][0]["finish_reason"]
        made = _made({"text": message["content"], "calls": calls, "thought": thought, "end": end})
        return made | {"parks": body["preempt"]["parks"]}

    def typed(self, say: str) -> Any:
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
        return json.loads(
            self._post(_asked(say, False) | {"response_format": form})["choices"][0]["message"]["content"]
        )

    def leave(self, say: str) -> str:
        deltas = (choice["delta"].get("content") for choice in self._choices(_asked(say, False)))
        return str(next(filter(None, deltas)))

    def _choices(self, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
        with connect_sse(self._http, "POST", _CHAT, json=asked | {"stream": True}) as source:
            if source.response.status_code != 200:
                raise Refused(source.response.status_code, json.loads(source.response.read())["error"])
            for event in source.iter_sse():
                if event.data == "[DONE]":
                    return
                told = event.json()
                if "error" in told:
                    raise Refused(200, told["error"])
                yield from told["choices"]

    def _post(self, asked: dict[str, Any]) -> dict[str, Any]:
        response = self._http.post(_CHAT, json=asked)
        body: dict[str, Any] = response.json()
        if response.status_code != 200:
            raise Refused(response.status_code, body["error"])
        return body


def _asked(say: str, tools: bool) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": say}]}
    return asked | ({"tools": [TOOL]} if tools else {})


def _made(message: Made) -> Made:
    calls = [call | {"arguments": json.loads(call["arguments"])} for call in message["calls"]]
    return message | {"calls": calls, "thought": message["thought"] or None}


if __name__ == "__main__":
    main({"httpx-sse": Events})
