"""`generation_settings`: how an answer is sampled, in llama-server's words. Knows no request."""

from typing import Any

from parkway.api.llama_bodies import Completed
from parkway.api.llama_samplers import ORDER
from parkway.request import SamplingParams

_UNBUILT: dict[str, Any] = {
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "typical_p": 1.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["\n", ":", '"', "*"],
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "n_keep": 0,
    "n_discard": 0,
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


def generation_settings(body: Completed, sampling: SamplingParams, seed: int) -> dict[str, Any]:
    limit = -1 if sampling.max_tokens is None else sampling.max_tokens
    return {
        **sampled(sampling, seed),
        **_UNBUILT,
        "stop": list(sampling.stop),
        "max_tokens": limit,
        "n_predict": limit,
        "ignore_eos": sampling.ignore_eos,
        "stream": bool(body.stream),
        "logit_bias": [{"bias": bias, "token": token_id} for token_id, bias in sampling.logit_bias],
        "n_probs": body.top_logprobs,
        "grammar": body.grammar or "",
        "samplers": list(ORDER),
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
    }
