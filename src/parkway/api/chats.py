"""From a chat that is asked for to what an engine can be asked: the prompt, the grammar, who reads the answer. Knows no
door."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from parkway.api.chat_ask import ChatAsk
from parkway.api.off_loop import off_loop
from parkway.api.reading import Reading
from parkway.errors import BadRequest
from parkway.request import SamplingParams
from parkway.text import ModelText
from parkway.text.dialects import special_tokens
from parkway.text.parts import Dialect, Tool
from parkway.text.template_needs import Needs
from parkway.text.tool_messages import for_template, knows_tools, spelled_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A chat that can be begun. `dialect` is None where the whole answer is content. `hidden`: tokens without text."""

    prompt: list[int]
    sampling: SamplingParams
    dialect: Dialect | None
    hidden: frozenset[int]
    tools: tuple[Tool, ...]
    thinking: bool
    tells_thoughts: bool
    one_call: bool

    def reading(self) -> Reading | None:
        """Who reads one of its answers."""
        if self.dialect is None:
            return None
        parser = self.dialect.parser(tools=self.tools, thinking=self.thinking)
        return Reading(parser, self.thinking, tells_thoughts=self.tells_thoughts, one_call=self.one_call)


class Chats:
    """How chats are put to one model, whose answers are in one dialect."""

    def __init__(self, text: ModelText, dialect: Dialect) -> None:
        tokenizer, source = text.tokenizer, text.template.source if text.template else ""
        self._text = text
        self._dialect = dialect
        self._special = special_tokens(dialect, tokenizer)
        self._hidden = tokenizer.special_ids - set(self._special.values()) | tokenizer.stop_ids
        self._thinks = any(mark in source for mark in dialect.thought_marks)
        self._knows_tools = knows_tools(source)
        self._needs = Needs.of(text.template) if text.template and self._knows_tools else Needs()

    async def prepared(self, ask: ChatAsk) -> Chat:
        """Raises BadRequest naming messages, tools or tool_choice."""
        tools = () if ask.tool_choice == "none" else ask.tools
        text = await off_loop(_told(ask, tools), self._rendered, ask, tools)
        thinking = self._thinks and self._dialect.within_thought(text)
        read = bool(tools) or (self._thinks and ask.reasoning == "split")
        grammar = await asyncio.to_thread(self._grammar, ask, tools, thinking, read) if _formed(ask, tools) else None
        return Chat(
            prompt=await off_loop(text, self._text.encoded, text),
            sampling=replace(ask.sampling, grammar=grammar) if grammar else ask.sampling,
            dialect=self._dialect if read else None,
            hidden=self._hidden if read or self._thinks else self._text.tokenizer.special_ids,
            tools=tools,
            thinking=thinking,
            tells_thoughts=ask.reasoning == "split",
            one_call=not ask.parallel_calls,
        )

    async def text_of(self, ask: ChatAsk) -> str:
        """The prompt as text. Raises BadRequest naming messages."""
        tools = () if ask.tool_choice == "none" else ask.tools
        return await off_loop(_told(ask, tools), self._rendered, ask, tools)

    def _rendered(self, ask: ChatAsk, tools: Sequence[Tool]) -> str:
        """The prompt's text."""
        messages: Sequence[Mapping[str, Any]] = for_template(ask.messages)
        variables: dict[str, Any] = {**ask.variables, "add_generation_prompt": ask.add_generation_prompt}
        if not self._knows_tools:
            messages = spelled_out(messages, tools, self._dialect)
        messages = self._needs.met(messages)
        if tools and self._knows_tools:
            variables["tools"] = [_template_tool(tool) for tool in tools]
        try:
            text = self._text.chat_text(messages, **variables)
        except BadRequest as failure:
            failure.param = failure.param or "messages"
            raise
        return _cut_after(text, messages[-1]) if ask.continue_final else text

    def _grammar(self, ask: ChatAsk, tools: tuple[Tool, ...], thinking: bool, read: bool) -> str | None:
        """What the choice of tools and the form of the content ask for."""
        dialect, special = self._dialect, self._special
        if must := _must(ask, tools):
            parallel = ask.parallel_calls and ask.tool_choice == "required"
            return dialect.calls(must, parallel=parallel, thinking=thinking, special=special)
        if ask.grammar and (read or thinking):
            return dialect.content(ask.grammar, tools, parallel=ask.parallel_calls, thinking=thinking, special=special)
        if _held(ask, tools):
            return dialect.held(tools, parallel=ask.parallel_calls, thinking=thinking, special=special)
        return ask.grammar


def _told(ask: ChatAsk, tools: Sequence[Tool]) -> Any:
    """What the template is told and the client has sent."""
    return ask.messages, ask.variables, [(tool.name, tool.description, tool.parameters) for tool in tools]


def _must(ask: ChatAsk, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """The tools of which one must be called."""
    return tuple(tool for tool in tools if ask.tool_choice in ("required", f"tool:{tool.name}"))


def _formed(ask: ChatAsk, tools: tuple[Tool, ...]) -> bool:
    return ask.grammar is not None or bool(_must(ask, tools)) or _held(ask, tools)


def _held(ask: ChatAsk, tools: tuple[Tool, ...]) -> bool:
    """Whether calls that are the model's choice keep to the schemas of their tools."""
    return ask.grammar is None and ask.tool_choice == "auto" and any(tool.strict for tool in tools)


def _template_tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _cut_after(text: str, last: Mapping[str, Any]) -> str:
    """The rendered chat up to the end of its last message, which is gone on with. Raises BadRequest."""
    content = str(last.get("content") or "")
    at = text.rfind(content.strip())
    if last["role"] != "assistant" or not content.strip() or at < 0:
        raise BadRequest("messages", "only an answer of the assistant that has text can be gone on with")
    whole = at + len(content.lstrip())
    return text[:whole] if text[at:whole] == content.lstrip() else text[: at + len(content.strip())]
