"""What a client may ask for, as pydantic models, and how it becomes sampling parameters. Knows no token ids."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from parkway.config import Notices
from parkway.errors import BadRequest
from parkway.request import MAX_LOGPROBS, SamplingParams

MAX_CHOICES = 128
MAX_ANSWERS = 2048
"""Most answers, prompts times choices, of one request."""
MAX_STOP_STRINGS = 32
COMPLETION_TOKENS = 16
"""OpenAI's default of max_tokens for completions; a chat's default is the rest of the context."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "response_format": ({"type": "text"},),
    "functions": ([],),
    "logit_bias": ({}, []),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repeat_penalty": (1,),
    "repetition_penalty": (1,),
    "best_of": (0, 1),
    "suffix": ("",),
    "grammar": ("",),
    "json_schema": (),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
    "chat_template": (),
    "chat_template_kwargs": ({},),
}
"""Fields that would change the answer and are not built: the values, beside null, that ask for nothing."""


def unicode_text(value: str) -> str:
    """Raises ValueError for half of a surrogate pair, which JSON can spell and no tokenizer takes."""
    value.encode()
    return value


def _text_parts(value: Any) -> Any:
    return [{"type": "text", "text": unicode_text(value)}] if isinstance(value, str) else value


def _stop(value: Any) -> list[str]:
    stop = [value] if isinstance(value, str) else value
    if isinstance(stop, list) and len(stop) <= MAX_STOP_STRINGS and all(isinstance(each, str) for each in stop):
        return [unicode_text(each) for each in stop]
    raise ValueError(f"must be a string or a list of at most {MAX_STOP_STRINGS} strings")


def _prompts(value: Any) -> list[str | list[int]]:
    """A text, token ids, or a list of either, as a list of prompts."""
    prompts = [value] if isinstance(value, str) or _are_ids(value) else value
    if isinstance(prompts, list) and prompts and all(isinstance(each, str) or _are_ids(each) for each in prompts):
        return [unicode_text(each) if isinstance(each, str) else each for each in prompts]
    raise ValueError("must be a text, a list of token ids, or a list of texts or of such lists, and not empty")


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)


Text = Annotated[str, AfterValidator(unicode_text)]
Stop = Annotated[list[str], PlainValidator(_stop, json_schema_input_type=str | list[str])]
Prompts = Annotated[
    list[str | list[int]],
    PlainValidator(_prompts, json_schema_input_type=str | list[int] | list[str] | list[list[int]]),
]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class TextPart(_Body):
    type: Literal["text"]
    text: Text


class Message(_Body):
    """One message; fields that only some templates know (name, tool_calls …) go to the template as they came."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[TextPart] | None, BeforeValidator(_text_parts)] = None

    def for_template(self) -> dict[str, Any]:
        # "developer" is OpenAI's newer name; chat templates were written for "system".
        role = "system" if self.role == "developer" else self.role
        text = "".join(part.text for part in self.content or ())
        return {**(self.model_extra or {}), "role": role, "content": text}


class StreamOptions(_Body):
    include_usage: bool | None = None


class _Asked(_Body):
    """The fields that both endpoints share. Unknown ones are ignored, except those that would change the answer."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: Stop | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    notices: Notices | None = None
    sse_ping_interval: Annotated[int, Field(ge=-1, lt=2**31)] | None = None

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def refuse_unbuilt(self) -> None:
        """Raises BadRequest naming a field that would change the answer and can't be honoured."""
        extra = self.model_extra or {}
        for name, neutral in _NEUTRAL.items():
            if (value := extra.get(name)) is not None and value not in neutral:
                raise BadRequest(name, f"{name} is not supported")
        if extra.get("tools") and extra.get("tool_choice") != "none":
            raise BadRequest("tools", "tools are not supported; send tool_choice none to go without")

    def sampling(self, **more: int | None) -> SamplingParams:
        """The parameters, defaults filled in. Raises BadRequest naming the field."""
        names = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "ignore_eos", "cache_prompt")
        given = {name: getattr(self, name) for name in names} | more
        kept = {name: value for name, value in given.items() if value is not None}
        return SamplingParams(stop=tuple(self.stop or ()), **kept)


class ChatBody(_Asked):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    @model_validator(mode="after")
    def _prefer_newer_name(self) -> "ChatBody":
        if self.max_completion_tokens is not None:
            self.max_tokens = self.max_completion_tokens
        return self

    def chat_sampling(self) -> SamplingParams:
        if self.top_logprobs and not self.logprobs:
            raise BadRequest("top_logprobs", "top_logprobs needs logprobs to be true")
        return self.sampling(logprobs=(self.top_logprobs or 0) if self.logprobs else None)

    def template_messages(self) -> list[dict[str, Any]]:
        for index, message in enumerate(self.messages):
            if message.content is None and message.role != "assistant":
                raise BadRequest(f"messages.{index}.content", f"messages.{index}.content is missing")
        return [message.for_template() for message in self.messages]


class CompletionBody(_Asked):
    prompt: Prompts
    logprobs: int | None = None
    echo: bool | None = None

    def completion_sampling(self) -> SamplingParams:
        limit = COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens
        return self.sampling(
            max_tokens=limit, logprobs=self.logprobs, prompt_logprobs=self.logprobs if self.echo else None
        )
