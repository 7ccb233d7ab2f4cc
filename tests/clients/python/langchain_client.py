"""LangChain's client of OpenAI's API: chats and responses."""

from functools import partial
from typing import Any

from langchain_openai import ChatOpenAI

from tests.clients.python.scenarios import MODEL, SCHEMA, TOOL, Made, main


class Chats:
    def __init__(self, url: str, *, responses: bool) -> None:
        self._model = ChatOpenAI(
            model=MODEL, base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30, use_responses_api=responses
        )

    def stream(self, say: str, *, tools: bool) -> Made:
        whole: Any = None
        for chunk in self._with(tools).stream(say):
            whole = chunk if whole is None else whole + chunk
        return _made(whole)

    def whole(self, say: str, *, tools: bool) -> Made:
        return _made(self._with(tools).invoke(say))

    def typed(self, say: str) -> Any:
        schema = {"title": "n", "description": "d", **SCHEMA}
        return self._model.with_structured_output(schema, method="json_schema").invoke(say)

    def leave(self, say: str) -> str:
        for chunk in (stream := self._model.stream(say)):
            if text := _text(chunk):
                stream.close()
                return text
        return ""

    def _with(self, tools: bool) -> Any:
        return self._model.bind_tools([TOOL]) if tools else self._model


def _text(message: Any) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(block["text"] for block in message.content if block["type"] == "text")


def _made(message: Any) -> Made:
    calls = [{"name": call["name"], "arguments": call["args"]} for call in message.tool_calls]
    return {"text": _text(message), "calls": calls}


if __name__ == "__main__":
    main({"langchain chat": partial(Chats, responses=False), "langchain responses": partial(Chats, responses=True)})
