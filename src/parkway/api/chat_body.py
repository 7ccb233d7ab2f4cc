"""The body of /v1/chat/completions, and the chat that it asks for. Knows no prompt and no answer."""

from typing import Annotated, Any, Literal

from pydantic import Field

from parkway.api.chat_ask import ChatAsk
from parkway.api.chat_messages import ChatMessage, FunctionTool
from parkway.api.constraints import Constrained, grammar_for
from parkway.api.sampling_fields import OTHER_SAMPLERS
from parkway.api.tool_choice import ToolChoice, chosen
from parkway.errors import BadRequest
from parkway.request import MAX_LOGPROBS, SamplingParams
from parkway.text import Tokenizer

UNBUILT: dict[str, tuple[Any, ...]] = OTHER_SAMPLERS | {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"], []),
    "audio": (),
    "web_search_options": (),
    "echo": (False,),
    "add_special_tokens": (False,),
    "best_of": (1, 0),
    "suffix": ("",),
    "grammar_lazy": (False,),
    "reasoning_in_content": (False,),
    "thinking_token_budget": (-1,),
    "thinking_budget_tokens": (-1,),
    "reasoning_budget": (-1,),
    "mm_processor_kwargs": ({},),
    "kv_transfer_params": ({},),
}
"""Fields beside other samplers that can't be honoured: the values, beside null, that ask for nothing."""


class ChatBody(Constrained):
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    reasoning_format: Literal["none", "auto", "deepseek"] | None = None
    include_reasoning: bool | None = None

    def limit(self) -> tuple[str, int | None]:
        newer = self.max_completion_tokens
        return super().limit() if newer is None else ("max_completion_tokens", newer)

    async def ask(self, tokenizer: Tokenizer, template: str) -> ChatAsk:
        """The chat; `template` is the source of the model's own. Raises BadRequest naming the field."""
        self.refuse(UNBUILT)
        if self.chat_template not in (None, "", template):
            raise BadRequest("chat_template", "chat_template is not supported: the model's own is used")
        tools, choice = chosen([each.tool() for each in self.tools or ()], self.tool_choice)
        goes_on = bool(self.continue_final_message)
        if goes_on and self.add_generation_prompt:
            raise BadRequest(
                "continue_final_message", "continue_final_message can't be combined with add_generation_prompt"
            )
        return ChatAsk(
            messages=self._messages(),
            sampling=await self._chat_sampling(tokenizer),
            choices=self.n or 1,
            priority=self.priority or 0,
            tools=tools,
            tool_choice=choice,
            parallel_calls=self.parallel_tool_calls is not False,
            grammar=await grammar_for(self.constraint()),
            stop_ids=self.stop_ids(tokenizer),
            variables=self._variables(),
            add_generation_prompt=self.add_generation_prompt is not False and not goes_on,
            continue_final=goes_on,
            reasoning="off" if self.reasoning_format == "none" else "split",
        )

    async def _chat_sampling(self, tokenizer: Tokenizer) -> SamplingParams:
        if self.top_logprobs and not self.logprobs:
            raise BadRequest("top_logprobs", "top_logprobs needs logprobs to be true")
        return await self.sampled(tokenizer, logprobs=(self.top_logprobs or 0) if self.logprobs else None)

    def _messages(self) -> list[dict[str, Any]]:
        for index, message in enumerate(self.messages):
            if message.content is None and message.role != "assistant":
                raise BadRequest(f"messages.{index}.content", f"messages.{index}.content is missing")
        return [message.for_template() for message in self.messages]

    def _variables(self) -> dict[str, Any]:
        """What the template is told beside messages and tools; its own arguments have the last word."""
        thinks = False if self.enable_thinking is None and self.reasoning_effort == "none" else self.enable_thinking
        told = {"documents": self.documents, "enable_thinking": thinks, "reasoning_effort": self.reasoning_effort}
        return {name: value for name, value in told.items() if value is not None} | (self.chat_template_kwargs or {})
