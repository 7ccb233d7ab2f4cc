"""The body of /v1/responses, the chat that it asks for, and what a response says of its request. Knows no prompt."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from parkway.api.bodies import Body, Text
from parkway.api.chat_ask import ChatAsk
from parkway.api.chat_body import UNBUILT
from parkway.api.constraints import Constrained, Constraint, grammar_for
from parkway.api.openai_responses_input import Items, template_messages
from parkway.api.openai_responses_tools import FunctionTool, ToolChoice, tools_within
from parkway.errors import BadRequest
from parkway.request import MAX_LOGPROBS, SamplingParams
from parkway.text import Tokenizer

_REFUSED: dict[str, tuple[Any, ...]] = UNBUILT | {
    "chat_template": ("",),
    "documents": ([],),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "include_reasoning": (True,),
    "context_management": ([],),
    "moderation": (),
}
"""What can't be honoured: the values, beside null, that ask for nothing."""
_KEPT: dict[str, tuple[Any, ...]] = {
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "background": (False,),
}
"""… because it needs a server that keeps responses."""
_RENAMED = {
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "logprobs": 'include ["message.output_text.logprobs"]',
}
"""… because it is spelt otherwise here than in chats."""
_LOGPROBS = "message.output_text.logprobs"


class TextFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    name: Text | None = None
    description: Text | None = None
    schema_: dict[str, Any] | None = Field(alias="schema", default=None)
    strict: bool | None = None

    def constraint(self) -> Constraint | None:
        if self.type == "text":
            return None
        if self.type == "json_object":
            return Constraint("json_object", "", "text.format")
        if self.schema_ is None:
            raise BadRequest("text.format.schema", "text.format.schema is missing")
        return Constraint("json_schema", self.schema_, "text.format.schema")


class TextConfig(Body):
    format: TextFormat | None = None


class Reasoning(Body):
    effort: Text | None = None


class ResponseBody(Constrained):
    input: Items
    instructions: Text | None = None
    max_output_tokens: int | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    include: list[str] | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    reasoning_format: Literal["none", "auto", "deepseek"] | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, Text] | None = None
    store: bool | None = None
    user: Text | None = None
    safety_identifier: Text | None = None
    prompt_cache_key: Text | None = None

    @property
    def tells_logprobs(self) -> bool:
        return _LOGPROBS in (self.include or ()) or bool(self.top_logprobs)

    def limit(self) -> tuple[str, int | None]:
        own = self.max_output_tokens
        return super().limit() if own is None else ("max_output_tokens", own)

    async def ask(self, tokenizer: Tokenizer) -> ChatAsk:
        """The chat. Raises BadRequest naming the field."""
        self._refuse()
        tools, choice = tools_within(self.tools or (), self.tool_choice)
        return ChatAsk(
            messages=template_messages(self.instructions, self.input),
            sampling=await self.sampled(tokenizer, logprobs=(self.top_logprobs or 0) if self.tells_logprobs else None),
            priority=self.priority or 0,
            tools=tools,
            tool_choice=choice,
            parallel_calls=self.parallel_tool_calls is not False,
            grammar=await grammar_for(self.constraint()),
            stop_ids=self.stop_ids(tokenizer),
            variables=self._variables(),
            reasoning="off" if self.reasoning_format == "none" else "split",
        )

    def told(self, sampling: SamplingParams) -> dict[str, Any]:
        """What a response says of its request; strict clients want all of it."""
        form = self.text.format if self.text else None
        return {
            "background": False,
            "frequency_penalty": sampling.frequency_penalty,
            "instructions": self.instructions,
            "max_output_tokens": sampling.max_tokens,
            "max_tool_calls": None,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "presence_penalty": sampling.presence_penalty,
            "previous_response_id": None,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": {"effort": self.reasoning.effort if self.reasoning else None, "summary": None},
            "safety_identifier": self.safety_identifier,
            "service_tier": "default",
            "store": False,
            "temperature": sampling.temperature,
            "text": {"format": form.model_dump(by_alias=True, exclude_unset=True) if form else {"type": "text"}},
            "tool_choice": self.tool_choice.told if self.tool_choice else "auto",
            "tools": [tool.model_dump() for tool in self.tools or ()],
            "top_logprobs": sampling.logprobs or 0,
            "top_p": sampling.top_p,
            "truncation": "disabled",
            "user": self.user,
        }

    def _refuse(self) -> None:
        extra = self.model_extra or {}
        for name, neutral in _KEPT.items():
            if (value := extra.get(name)) is not None and value not in neutral:
                message = (
                    f"{name} is not supported: this server keeps no responses; send the whole conversation as input"
                )
                raise BadRequest(name, message)
        for name, here in _RENAMED.items():
            if extra.get(name) is not None:
                raise BadRequest(name, f"{name} is not supported here; send {here}")
        self.refuse(_REFUSED)
        if self.n not in (None, 1):
            raise BadRequest("n", "n is not supported; a response is one answer")
        if self.truncation == "auto":
            raise BadRequest("truncation", "truncation auto is not supported: an input that is too long is an error")

    def _constraints(self) -> Iterator[Constraint]:
        if self.text and self.text.format and (constraint := self.text.format.constraint()) is not None:
            yield constraint
        yield from super()._constraints()

    def _variables(self) -> dict[str, Any]:
        """What the template is told beside messages and tools; its own arguments have the last word."""
        effort = self.reasoning.effort if self.reasoning else None
        thinks = False if self.enable_thinking is None and effort == "none" else self.enable_thinking
        told = {"enable_thinking": thinks, "reasoning_effort": effort}
        return {name: value for name, value in told.items() if value is not None} | (self.chat_template_kwargs or {})
