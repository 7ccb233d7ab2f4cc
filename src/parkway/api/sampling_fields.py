"""How an answer is sampled, as clients of OpenAI, llama-server and vLLM write it. Knows no endpoint."""

from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import PlainValidator

from parkway.api.bodies import Asked, unicode_text
from parkway.api.llama_samplers import Samplers, ordered
from parkway.api.logit_bias import Bias, by_token
from parkway.api.off_loop import off_loop
from parkway.errors import BadRequest
from parkway.request import SamplingParams
from parkway.text import Tokenizer
from parkway.text.breakers import MOST_BYTES, breakers_of

MAX_STOP_STRINGS = 32
MAX_STOP_IDS = 4096

OTHER_SAMPLERS: dict[str, tuple[Any, ...]] = {
    "tfs_z": (1,),
    "adaptive_target": (-1,),
    "top_a": (0,),
    "smoothing_factor": (0,),
    "length_penalty": (1,),
    "use_beam_search": (False,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "logits_processors": ([],),
    "lora": ([],),
    "t_max_predict_ms": (0, -1),
    "n_indent": (0,),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "prompt_logprobs": (),
    "n_probs": (0,),
    "post_sampling_probs": (False,),
    "return_tokens_as_token_ids": (False,),
}
"""Fields of theirs that would change the answer and are not built: the values, beside null, that ask for nothing.

What only such a sampler reads (adaptive_decay …) is ignored, as it is there while it is off.
"""


def _stop(value: Any) -> list[str]:
    stop = [value] if isinstance(value, str) else value
    if isinstance(stop, list) and len(stop) <= MAX_STOP_STRINGS and all(isinstance(each, str) for each in stop):
        return [unicode_text(each) for each in stop]
    raise ValueError(f"must be a string or a list of at most {MAX_STOP_STRINGS} strings")


def _breakers(value: Any) -> list[str]:
    texts = value if isinstance(value, list) and all(isinstance(each, str) for each in value) else [""]
    if len(texts) <= _MOST_BREAKERS and all(0 < len(unicode_text(each).encode()) <= MOST_BYTES for each in texts):
        return texts
    raise ValueError(f"must be a list of at most {_MOST_BREAKERS} strings, each of 1 to {MOST_BYTES} bytes")


def _token_ids(value: Any) -> list[int]:
    if isinstance(value, list) and len(value) <= MAX_STOP_IDS and all(type(each) is int for each in value):
        return value
    raise ValueError(f"must be a list of at most {MAX_STOP_IDS} token ids")


Stop = Annotated[list[str], PlainValidator(_stop, json_schema_input_type=str | list[str])]
Breakers = Annotated[list[str], PlainValidator(_breakers, json_schema_input_type=list[str])]
TokenIds = Annotated[list[int], PlainValidator(_token_ids, json_schema_input_type=list[int])]

_AS_GIVEN = (
    *("temperature", "top_p", "min_p", "min_tokens", "ignore_eos", "cache_prompt"),
    *("repeat_penalty", "repeat_last_n", "presence_penalty", "frequency_penalty"),
    *("typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent"),
    *("mirostat", "mirostat_tau", "mirostat_eta"),
    *("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "n_keep", "n_discard"),
)

BREAKERS = ("\n", ":", '"', "*")
"""llama-server's: where a repetition ends for the sampler DRY unless a request says otherwise."""
_MOST_BREAKERS = 16


OTHER_NAMES = {"typical_p": "typ_p", "mirostat": "mirostat_mode"}
"""Fields that some clients spell otherwise."""


class Sampled(Asked):
    """-1 stands for "no limit" of max_tokens, "all" of top_k, "draw one" of seed, as where such clients come from."""

    stop: Stop | None = None
    stop_token_ids: TokenIds | None = None
    max_tokens: int | None = None
    n_predict: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Bias | None = None
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None
    typical_p: float | None = None
    typ_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    mirostat: int | None = None
    mirostat_mode: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: Breakers | None = None
    samplers: Samplers | None = None
    n_keep: int | None = None
    n_discard: int | None = None

    def limit(self) -> tuple[str, int | None]:
        """The field that says how many tokens the answer may have, and what it says."""
        return ("n_predict", self.n_predict) if self.max_tokens is None else ("max_tokens", self.max_tokens)

    async def sampled(
        self, tokenizer: Tokenizer, *, default_limit: int | None = None, **more: int | None
    ) -> SamplingParams:
        """The same as `sampling`, for the event loop: texts of logit_bias become tokens."""
        return await off_loop(self.logit_bias, self.sampling, tokenizer, default_limit=default_limit, **more)

    def sampling(self, tokenizer: Tokenizer, *, default_limit: int | None = None, **more: int | None) -> SamplingParams:
        """The parameters, defaults filled in. Raises BadRequest naming the field as it was spelt."""
        limit_name, limit = self.limit()
        given: dict[str, Any] = {name: getattr(self, name) for name in _AS_GIVEN} | more
        given["max_tokens"] = {None: default_limit, -1: None}.get(limit, limit)
        given["top_k"] = 0 if self.top_k == -1 else self.top_k
        given["seed"] = None if self.seed == -1 else self.seed
        spelt = {"max_tokens": limit_name}
        if self.repetition_penalty is not None:
            spelt["repeat_penalty"] = "repetition_penalty"
            given |= self._repetition()
        for name, other in OTHER_NAMES.items():
            if given[name] is None and getattr(self, other) is not None:
                given[name], spelt[name] = getattr(self, other), other
        given |= {"stop": tuple(self.stop or ()), "logit_bias": by_token(self.logit_bias or (), tokenizer)}
        made = _made({name: value for name, value in given.items() if value is not None}, spelt)
        if made.n_keep >= 0:  # llama-server keeps the token in front of a prompt beside them
            made = replace(made, n_keep=made.n_keep + len(tokenizer.with_bos([])))
        if made.max_tokens is not None and made.min_tokens > made.max_tokens:
            raise BadRequest("min_tokens", f"min_tokens must not be greater than {limit_name} ({made.max_tokens})")
        if self.samplers is not None:
            made = ordered(made, self.samplers)
        return replace(made, dry_breakers=breakers_of(self.breakers, tokenizer)) if made.dry else made

    @property
    def breakers(self) -> list[str]:
        return list(BREAKERS) if self.dry_sequence_breakers is None else self.dry_sequence_breakers

    def stop_ids(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Raises BadRequest for one that is none."""
        asked = tuple(self.stop_token_ids or ())
        if asked and not 0 <= min(asked) <= max(asked) < tokenizer.vocab_size:
            raise BadRequest("stop_token_ids", f"stop_token_ids must be between 0 and {tokenizer.vocab_size - 1}")
        return asked

    def _repetition(self) -> dict[str, Any]:
        """vLLM's name of repeat_penalty; it looks at all tokens, not at the last ones."""
        if self.repeat_penalty is not None:
            raise BadRequest("repetition_penalty", "repetition_penalty is repeat_penalty under another name; send one")
        last = -1 if self.repeat_last_n is None else self.repeat_last_n
        return {"repeat_penalty": self.repetition_penalty, "repeat_last_n": last}


def _made(given: dict[str, Any], spelt: dict[str, str]) -> SamplingParams:
    try:
        return SamplingParams(**given)
    except BadRequest as failure:
        name = failure.param or ""
        if name in spelt:
            raise BadRequest(spelt[name], str(failure).replace(name, spelt[name], 1)) from None
        raise
