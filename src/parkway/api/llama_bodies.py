"""The bodies of /completion and /infill, in llama-server's words. Knows no answer."""

from typing import Annotated, Any, TypeVar

from msgspec.structs import replace
from pydantic import Field, field_validator, model_validator

from parkway.api.bodies import MAX_ANSWERS, MAX_CHOICES, Body, Text
from parkway.api.constraints import Constrained, grammar_for
from parkway.api.llama_prompts import Prompts
from parkway.api.sampling_fields import OTHER_SAMPLERS
from parkway.request import MAX_LOGPROBS, SamplingParams
from parkway.text import Tokenizer

DRAWN_SEED = 2**32 - 1
"""llama-server's default: a seed is drawn. So does -1."""

DEFAULTS: dict[str, Any] = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""llama-server's own, of fields that neither the request nor the settings say."""

_UNBUILT: dict[str, tuple[Any, ...]] = {name: rest for name, rest in OTHER_SAMPLERS.items() if name != "n_probs"} | {
    "min_keep": (0, 1),
    "grammar_lazy": (False,),
    "grammar_triggers": ([],),
    "reasoning_budget_tokens": (-1,),
    "multimodal_data": ([],),
    "image_data": ([],),
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1, 0),
}
"""Fields that would change the answer and are not built: the values, beside null, that ask for nothing."""

Asked = TypeVar("Asked", bound="Completed")


class Completed(Constrained):
    """What can be said about any completion."""

    n_cmpl: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_completion_tokens: int | None = None
    n_probs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    return_tokens: bool | None = None
    return_progress: bool | None = None
    response_fields: list[Text] | None = None

    @field_validator("stop")
    @classmethod
    def _no_empty_ones(cls, stop: list[str] | None) -> list[str] | None:
        return stop and [each for each in stop if each]

    @field_validator("seed")
    @classmethod
    def _drawn(cls, seed: int | None) -> int | None:
        return -1 if seed == DRAWN_SEED else seed

    @field_validator("top_n_sigma")
    @classmethod
    def _no_sigmas(cls, value: float | None) -> float | None:
        return -1.0 if value is not None and value < 0 else value

    @field_validator("temperature", "top_k")
    @classmethod
    def _not_negative(cls, value: float | None) -> float | None:
        """The most probable token; all tokens."""
        return value if value is None or value > 0 or value != value else type(value)(0)

    @property
    def choices(self) -> int:
        return self.n_cmpl or self.n or 1

    @property
    def top_logprobs(self) -> int:
        """How many of the most probable tokens are told beside each token; 0: nothing is told."""
        return (self.logprobs if self.n_probs is None else self.n_probs) or 0

    def limit(self) -> tuple[str, int | None]:
        """Any negative number stands for no limit."""
        for name in ("n_predict", "max_completion_tokens", "max_tokens"):
            if (value := getattr(self, name)) is not None:
                return name, max(value, -1)
        return "n_predict", None

    def completed(self: Asked) -> Asked:
        """With llama-server's defaults. Raises BadRequest."""
        self.refuse(_UNBUILT)
        values = {name: value for name, value in DEFAULTS.items() if getattr(self, name) is None}
        if self.repetition_penalty is not None:
            values.pop("repeat_penalty", None)
        return self.model_copy(update=values)

    async def llama_sampling(self, tokenizer: Tokenizer) -> SamplingParams:
        """Of a completed body. Raises BadRequest naming the field."""
        sampling = await self.sampled(tokenizer, logprobs=self.top_logprobs or None)
        grammar = await grammar_for(self.constraint())
        return replace(sampling, grammar=grammar) if grammar else sampling


class LlamaCompletion(Completed):
    prompt: Prompts

    @field_validator("prompt")
    @classmethod
    def _not_too_many(cls, prompt: Prompts) -> Prompts:
        if len(prompt) > MAX_ANSWERS:
            raise ValueError(f"must be at most {MAX_ANSWERS} prompts")
        return prompt


class OtherFile(Body):
    text: Text
    filename: Text = "tmp"


class Infill(Completed):
    """Editors always ask for the sampler `infill`, which joins tokens that begin alike, and for a limit of time, which
    would make an answer depend on the traffic. Here both do nothing, or no editor could ask."""

    input_prefix: Text
    input_suffix: Text
    input_extra: list[OtherFile] | None = None
    prompt: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_what_editors_always_ask(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        kept = {name: value for name, value in body.items() if name != "t_max_predict_ms"}
        if isinstance(names := kept.get("samplers"), list):
            kept["samplers"] = [name for name in names if name != "infill"]
        return kept
