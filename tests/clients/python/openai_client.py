"""OpenAI's client for Python: chats and responses."""

import json
from typing import Any

from openai import OpenAI

from tests.clients.python.scenarios import MODEL, PARAMETERS, SCHEMA, TOOL, Made, main


class Chats:
    def __init__(self, url: str) -> None:
        self._sdk = OpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0, timeout=30)

    def stream(self, say: str, *, tools: bool) -> Made:
        with self._sdk.chat.completions.stream(**_asked(say, tools)) as stream:
            for _ in stream:
                pass
            return _made(stream.get_final_completion())

    def whole(self, say: str, *, tools: bool) -> Made:
        return _made(self._sdk.chat.completions.create(**_asked(say, tools)))

    def typed(self, say: str) -> Any:
        form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
        completion = self._sdk.chat.completions.create(**_asked(say, False), response_format=form)
        return json.loads(completion.choices[0].message.content or "")

    def leave(self, say: str) -> str:
        with self._sdk.chat.completions.create(**_asked(say, False), stream=True) as stream:
            return next(str(piece) for chunk in stream if (piece := chunk.choices[0].delta.content))


def _asked(say: str, tools: bool) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": say}]}
    return asked | ({"tools": [TOOL]} if tools else {})


def _made(completion: Any) -> Made:
    choice = completion.choices[0]
    calls = [each.function for each in choice.message.tool_calls or []]
    made = {
        "text": choice.message.content,
        "calls": [{"name": call.name, "arguments": json.loads(call.arguments)} for call in calls],
        "thought": getattr(choice.message, "reasoning_content", None),
        "end": choice.finish_reason,
    }
    told = getattr(completion, "preempt", None)  # the client keeps it of whole answers only
    return made if told is None else made | {"parks": told["parks"]}


class Responses:
    def __init__(self, url: str) -> None:
        self._sdk = OpenAI(api_key="none", base_url=f"{url}/v1", max_retries=0, timeout=30)

    def stream(self, say: str, *, tools: bool) -> Made:
        with self._sdk.responses.stream(**self._asked(say, tools)) as stream:
            for _ in stream:
                pass
            return self._made(stream.get_final_response())

    def whole(self, say: str, *, tools: bool) -> Made:
        return self._made(self._sdk.responses.create(**self._asked(say, tools)))

    def typed(self, say: str) -> Any:
        form: Any = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}
        return json.loads(self._sdk.responses.create(**self._asked(say, False), text=form).output_text)

    def leave(self, say: str) -> str:
        with self._sdk.responses.create(**self._asked(say, False), stream=True) as stream:
            return next(str(event.delta) for event in stream if event.type == "response.output_text.delta")

    def _asked(self, say: str, tools: bool) -> dict[str, Any]:
        tool = {"type": "function", "name": "dir", "description": "d", "parameters": PARAMETERS, "strict": False}
        return {"model": MODEL, "input": say} | ({"tools": [tool]} if tools else {})

    def _made(self, response: Any) -> Made:
        calls = [item for item in response.output if item.type == "function_call"]
        thoughts = [item.content[0].text for item in response.output if item.type == "reasoning"]
        return {
            "text": response.output_text,
            "calls": [{"name": call.name, "arguments": json.loads(call.arguments)} for call in calls],
            "thought": "".join(thoughts) or None,
            "parks": response.preempt["parks"],
        }


if __name__ == "__main__":
    main({"openai chat": Chats, "openai responses": Responses})
