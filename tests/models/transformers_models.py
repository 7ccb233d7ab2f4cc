"""Tiny models of transformers' classes, as an independent implementation: random weights, float64 throughout."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.torch  # noqa: F401 before float32 is another one: it keeps a table by type
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

from tests.checkpoints import TOKENS

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
VOCABULARY = len(TOKENS)


@dataclass(frozen=True)
class Family:
    """`name`: transformers' class, without what it is for; `said`: of its config. `scale`: what its rows are to
    Parkway's. `in_gguf`: whether llama.cpp's converter keeps all of it."""

    name: str
    said: Mapping[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    atol: float = 1e-11
    in_gguf: bool = True


USUAL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 2**-17,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "attn_implementation": "eager",
    "experts_implementation": "eager",
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
DELTA = {
    "num_hidden_layers": 4,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
}
SHARED = {"shared_expert_intermediate_size": 32}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "long_factor": [1.0 + i / 2 for i in range(6)],
    "short_factor": [1.0 + i / 16 for i in range(6)],
    "original_max_position_embeddings": 64,
    "partial_rotary_factor": 0.75,
}
GEMMA = {"tie_word_embeddings": True, "query_pre_attn_scalar": 16, "sliding_window": 20}
CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
FAMILIES = {
    "llama": Family("Llama"),
    "llama with biases": Family("Llama", {"attention_bias": True}),
    "llama 3": Family(
        "Llama",
        {"rope_parameters": {**LLAMA3, "rope_theta": 500000.0, "original_max_position_embeddings": 128}},
        atol=1e-5,
    ),
    "llama linear": Family("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}}),
    "llama yarn": Family("Llama", {"rope_parameters": YARN}, atol=1e-5),
    "llama yarn mscale": Family(
        "Llama", {"rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 16.0}}, 1, 1e-5, False
    ),
    "mistral": Family("Mistral", {"sliding_window": 24}, in_gguf=False),
    "smollm3": Family("SmolLM3", {"num_hidden_layers": 5, "tie_word_embeddings": True}),
    "granite": Family(
        "Granite",
        {
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.25,
            "attention_multiplier": 0.125,
            "logits_scaling": 4.0,
        },
        scale=0.25,
    ),
    "olmo2": Family("Olmo2"),
    "qwen2": Family("Qwen2"),
    "qwen2 with windows": Family(
        "Qwen2", {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}, in_gguf=False
    ),
    "qwen3": Family("Qwen3", {"head_dim": 32}),
    "gemma2": Family("Gemma2", {**GEMMA, **CAPS}),
    "gemma2 with a scale of its own": Family("Gemma2", {**GEMMA, **CAPS, "query_pre_attn_scalar": 24}, in_gguf=False),
    "gemma3": Family(
        "Gemma3",
        {
            **GEMMA,
            "num_hidden_layers": 7,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "phi3": Family("Phi3", {"sliding_window": 30}),
    "phi3 long": Family(
        "Phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 64, "sliding_window": None}, atol=1e-5
    ),
    "qwen3moe": Family("Qwen3Moe", {**EXPERTS, "norm_topk_prob": True}),
    "gpt-oss": Family(
        "GptOss",
        {"num_local_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 32, "sliding_window": 16},
        atol=1e-5,
    ),
    "qwen3next": Family("Qwen3Next", {**EXPERTS, **DELTA, **SHARED}),
    "qwen35": Family("Qwen3_5", DELTA),
    "qwen35moe": Family("Qwen3_5Moe", {**EXPERTS, **DELTA, **SHARED}),
}


class Tiny:
    """A model of transformers, and what it says."""

    def __init__(self, family: Family, seed: int = 0) -> None:
        self.family = family
        kind = "TextConfig" if family.name in ("Gemma3", "Qwen3_5", "Qwen3_5Moe") else "Config"
        with in_float64():
            self.config = getattr(transformers, family.name + kind)(**{**USUAL, **family.said})
            self.model = getattr(transformers, f"{family.name}ForCausalLM")(self.config).double().eval()
        random = np.random.default_rng(seed)
        self.state = {}
        for name, tensor in self.model.named_parameters():
            values = drawn(name, tuple(tensor.shape), family.name, random)
            self.state[name] = torch.from_numpy(values)
            if name.endswith("A_log"):
                values = np.log(np.exp(values).astype(np.float64))  # files of both kinds keep exp(A_log) in float32
            tensor.data.copy_(torch.from_numpy(values))

    def save(self, folder: Path) -> Path:
        """As `save_pretrained` does: the names of models on the hub, float32."""
        with quiet():
            self.model.save_pretrained(folder, state_dict=dict(self.state))
        return folder

    def run(self, token_ids: list[int]) -> tuple[Floats, list[Floats]]:
        """Logits [tokens, vocabulary] of a whole sequence, and every layer's rows."""
        seen: list[Floats] = []
        hooks = [layer.register_forward_hook(_keeps(seen)) for layer in self.model.model.layers]
        with in_float64(), torch.no_grad():
            logits = self.model(torch.tensor([token_ids]), use_cache=False).logits[0].numpy()
        for hook in hooks:
            hook.remove()
        return logits, seen


def drawn(name: str, shape: tuple[int, ...], family: str, random: np.random.Generator) -> Float32s:
    """Values of a parameter, of a size that every one of them counts."""
    values = random.standard_normal(shape, np.float32)
    if name.endswith("A_log"):
        values = np.log(random.uniform(0.2, 3, shape)).astype(np.float32)
    elif len(shape) > 1 and not name.endswith("_bias"):
        inputs = shape[-2] if family == "GptOss" and "experts" in name else shape[-1]
        values /= np.float32(np.sqrt(inputs))
    elif "norm" in name:
        adds_one = family in ("Gemma2", "Gemma3", "Qwen3Next", "Qwen3_5", "Qwen3_5Moe")
        values = (np.rint(16 * values) / 64 + (not adds_one or "linear_attn" in name)).astype(np.float32)
    return values


@contextmanager
def in_float64() -> Iterator[None]:
    """Whatever asks for float32 gets float64."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float64)
    try:
        with quiet():
            yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept  # type: ignore[method-assign]
        torch.set_default_dtype(torch.float32)


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        yield


def _keeps(seen: list[Floats]) -> Callable[..., None]:
    def keep(module: Any, arguments: Any, output: Any) -> None:
        rows = output[0] if isinstance(output, tuple) else output
        seen.append(rows.reshape(-1, rows.shape[-1]).numpy().copy())

    return keep
