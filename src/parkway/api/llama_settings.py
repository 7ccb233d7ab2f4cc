"""`generation_settings`: how an answer is sampled, in llama-server's words. Knows no request."""

from typing import Any

from parkway.api.llama_bodies import Completed
from parkway.api.llama_samplers import order_of
from parkway.request import SamplingParams

_UNBUILT: dict[str, Any] = {
    "min_keep": 0,
    "grammar_lazy": False,
    "grammar_triggers": [],
    "preserved_tokens": [],
    "chat_format": "Content-only",
    "reasoning_format": "none",
    "reasoning_in_content": False,
    "speculative.n_max": 0,
    "speculative.n_min": 0,
    "speculative.p_min": 0.0,
    "post_sampling_probs": False,
    "backend_sampling": False,
    "lora": [],
}
"""What is off, with the values that stand for that there."""
_AS_NAMED = (
    *("typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent"),
    *("mirostat", "mirostat_tau", "mirostat_eta"),
    *("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"),
)


def generation_settings(body: Completed, sampling: SamplingParams, seed: int) -> dict[str, Any]:
    limit = -1 if sampling.max_tokens is None else sampling.max_tokens
    return {
        **sampled(sampling, seed),
        **_UNBUILT,
        "n_keep": body.n_keep or 0,
        "n_discard": body.n_discard or 0,
        "stop": list(sampling.stop),
        "max_tokens": limit,
        "n_predict": limit,
        "ignore_eos": sampling.ignore_eos,
        "stream": bool(body.stream),
        "logit_bias": [{"bias": bias, "token": token_id} for token_id, bias in sampling.logit_bias],
        "n_probs": body.top_logprobs,
        "grammar": body.grammar or "",
        "dry_sequence_breakers": body.breakers,
        "samplers": list(order_of(sampling)),
        "timings_per_token": bool(body.timings_per_token),
    }


def sampled(sampling: SamplingParams, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "min_tokens": sampling.min_tokens,
        "repeat_last_n": sampling.repeat_last_n,
        "repeat_penalty": sampling.repeat_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "cache_prompt": sampling.cache_prompt,
        **{name: getattr(sampling, name) for name in _AS_NAMED},
    }
