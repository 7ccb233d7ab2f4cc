"""LiteLLM, by three of its providers: OpenAI's API, vLLM's and Anthropic's."""

import json
import os
from functools import partial
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # read at import: no prices are fetched

import litellm

from tests.clients.python.scenarios import MODEL, SCHEMA, TOOL, Made, main

litellm.suppress_debug_info = True  # told on stdout


class Completions:
    def __init__(self, url: str, *, provider: str, model: str, path: str) -> None:
        self._asked = {"model": f"{provider}/{model}", "api_base": url + path, "api_key": "none", "num_retries": 0}

    def stream(self, say: str, *, tools: bool) -> Made:
        chunks = list(self._ask(say, tools, stream=True))
        return _made(litellm.stream_chunk_builder(chunks))

    def whole(self, say: str, *, tools: bool) -> Made:
        return _made(self._ask(say, tools))

    def typed(self, say: str) -> Any:
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
        return json.loads(self._ask(say, False, response_format=form).choices[0].message.content)

    def leave(self, say: str) -> str:
        for chunk in (stream := self._ask(say, False, stream=True)):
            if text := chunk.choices[0].delta.content:
                stream.completion_stream.close()
                return str(text)
        return ""

    def _ask(self, say: str, tools: bool, **fields: Any) -> Any:
        more = {"tools": [TOOL]} if tools else {}
        asked = self._asked | {"messages": [{"role": "user", "content": say}], "max_tokens": 200, "timeout": 30}
        return litellm.completion(**asked, **more, **fields)


def _made(completion: Any) -> Made:
    choice = completion.choices[0]
    calls = [each.function for each in choice.message.tool_calls or []]
    return {
        "text": choice.message.content,
        "calls": [{"name": call.name, "arguments": json.loads(call.arguments)} for call in calls],
        "thought": getattr(choice.message, "reasoning_content", None),
        "end": choice.finish_reason,
    }


if __name__ == "__main__":
    main(
        {
            "litellm openai": partial(Completions, provider="openai", model=MODEL, path="/v1"),
            "litellm hosted_vllm": partial(Completions, provider="hosted_vllm", model=MODEL, path="/v1"),
            "litellm anthropic": partial(Completions, provider="anthropic", model="claude-any", path=""),
        }
    )
