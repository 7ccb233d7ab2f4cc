"""The body of /v1/completions. Knows no token and no answer."""

from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import PlainValidator

from parkway.api.bodies import MAX_ANSWERS, unicode_text
from parkway.api.constraints import Constrained, grammar_for
from parkway.api.sampling_fields import OTHER_SAMPLERS
from parkway.errors import BadRequest
from parkway.request import SamplingParams
from parkway.text import Tokenizer

DEFAULT_TOKENS = 16
"""OpenAI's default of max_tokens for completions; a chat's default is the rest of the context."""

UNBUILT: dict[str, tuple[Any, ...]] = OTHER_SAMPLERS | {
    "best_of": (1, 0),
    "suffix": ("",),
    "prompt_embeds": (),
    "add_special_tokens": (True,),
    "grammar_lazy": (False,),
}
"""Fields beside other samplers that can't be honoured: the values, beside null, that ask for nothing."""


def _prompts(value: Any) -> list[str | list[int]]:
    """A text, token ids, or a list of either, as a list of prompts."""
    prompts = [value] if isinstance(value, str) or _are_ids(value) else value
    if isinstance(prompts, list) and prompts and all(isinstance(each, str) or _are_ids(each) for each in prompts):
        return [unicode_text(each) if isinstance(each, str) else each for each in prompts]
    raise ValueError("must be a text, a list of token ids, or a list of texts or of such lists, and not empty")


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)


Prompts = Annotated[
    list[str | list[int]],
    PlainValidator(_prompts, json_schema_input_type=str | list[int] | list[str] | list[list[int]]),
]


class CompletionBody(Constrained):
    prompt: Prompts
    logprobs: int | None = None
    echo: bool | None = None

    async def completion_sampling(self, tokenizer: Tokenizer) -> SamplingParams:
        """Raises BadRequest naming the field."""
        self.refuse(UNBUILT)
        if len(self.prompt) * (self.n or 1) > MAX_ANSWERS:
            raise BadRequest("prompt", f"prompt and n ask for more than {MAX_ANSWERS} answers")
        prompt_logprobs = self.logprobs if self.echo else None
        sampling = await self.sampled(
            tokenizer, default_limit=DEFAULT_TOKENS, logprobs=self.logprobs, prompt_logprobs=prompt_logprobs
        )
        grammar = await grammar_for(self.constraint())
        return replace(sampling, grammar=grammar) if grammar else sampling
