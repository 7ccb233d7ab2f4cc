"""The families once more, written without a look at Parkway's: a whole sequence at a time, in float64, no pages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGUFReader, get_tensor_name_map
from gguf.quants import dequantize

Floats = npt.NDArray[np.float64]


class WholeSequence:
    """A file's forward pass by the textbook. `halves`: rotary pairs lie half a head apart, as in all files but
    llama.cpp's of Llama, where they are neighbours."""

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            self._read_folder(path)
        else:
            self._read_gguf(path)
        self.frequencies = self.base ** (-np.arange(0, self.head_dim, 2) / self.head_dim) / self.factors

    def logits(self, token_ids: list[int]) -> Floats:
        """float64 [tokens, vocabulary]."""
        x = self.weights["token_embd.weight"][token_ids]
        for layer in range(self.layers):
            x = x + self._attention(self._norm(x, f"blk.{layer}.attn_norm"), f"blk.{layer}.attn")
            x = x + self._feed_forward(self._norm(x, f"blk.{layer}.ffn_norm"), layer)
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        return np.asarray(self._norm(x, "output_norm") @ head.T)

    def _read_gguf(self, path: Path) -> None:
        reader = GGUFReader(path)
        self.weights: dict[str, Floats] = {
            tensor.name: dequantize(tensor.data, tensor.tensor_type).astype(np.float64) for tensor in reader.tensors
        }
        fields = {key: field.contents() for key, field in reader.fields.items()}
        family = fields["general.architecture"]
        self.halves = family != "llama"
        self.layers, self.heads = fields[f"{family}.block_count"], fields[f"{family}.attention.head_count"]
        self.kv_heads, self.head_dim = (
            fields[f"{family}.attention.head_count_kv"],
            fields[f"{family}.attention.key_length"],
        )
        self.base, self.epsilon = (
            fields[f"{family}.rope.freq_base"],
            fields[f"{family}.attention.layer_norm_rms_epsilon"],
        )
        self.factors = self.weights.pop("rope_freqs.weight", np.ones(1))
        if fields.get(f"{family}.rope.scaling.type") == "linear":
            self.factors = self.factors * fields[f"{family}.rope.scaling.factor"]

    def _read_folder(self, path: Path) -> None:
        config = json.loads((path / "config.json").read_text())
        self.halves = True
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.kv_heads, self.head_dim = config["num_key_value_heads"], config["head_dim"]
        self.base, self.epsilon = config["rope_theta"], config["rms_norm_eps"]
        self.factors = factors_of(config["rope_scaling"] or {}, self.base, self.head_dim)
        architecture = next(arch for arch, name in MODEL_ARCH_NAMES.items() if name == config["model_type"])
        names = get_tensor_name_map(MODEL_ARCH(architecture), self.layers)
        self.weights = {}
        for file in path.glob("*.safetensors"):
            for name, values in read_safetensors(file).items():
                self.weights[str(names.get_name(name, (".weight", ".bias")))] = values

    def _norm(self, x: Floats, name: str) -> Floats:
        root_mean_square = np.sqrt((x**2).sum(axis=-1, keepdims=True) / x.shape[-1] + self.epsilon)
        return np.asarray(self.weights[f"{name}.weight"] * (x / root_mean_square))

    def _feed_forward(self, x: Floats, layer: int) -> Floats:
        gate, up, down = (self.weights[f"blk.{layer}.ffn_{part}.weight"] for part in ("gate", "up", "down"))
        gates = x @ gate.T
        return np.asarray((gates * (1 / (1 + np.exp(-gates))) * (x @ up.T)) @ down.T)

    def _attention(self, x: Floats, at: str) -> Floats:
        queries = self._rotated(self._projected(x, f"{at}_q", self.heads))
        keys = self._rotated(self._projected(x, f"{at}_k", self.kv_heads))
        values = self._projected(x, f"{at}_v", self.kv_heads)
        heads = [self._one_head(queries[:, h], *self._shared(keys, values, h)) for h in range(self.heads)]
        return np.asarray(np.concatenate(heads, axis=1) @ self.weights[f"{at}_output.weight"].T)

    def _projected(self, x: Floats, name: str, heads: int) -> Floats:
        """[tokens, heads, head_dim], with what a family adds: a bias, a norm of each head."""
        made = (x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)).reshape(len(x), heads, -1)
        return self._norm(made, f"{name}_norm") if f"{name}_norm.weight" in self.weights else np.asarray(made)

    def _shared(self, keys: Floats, values: Floats, head: int) -> tuple[Floats, Floats]:
        kv_head = head * self.kv_heads // self.heads
        return keys[:, kv_head], values[:, kv_head]

    def _one_head(self, q: Floats, k: Floats, v: Floats) -> Floats:
        scores = q @ k.T / np.sqrt(q.shape[1])
        scores[np.triu_indices(len(q), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1)[:, None])
        return np.asarray(weights @ v / weights.sum(axis=1)[:, None])

    def _rotated(self, x: Floats) -> Floats:
        """Pairs of lanes as complex numbers, turned by e^(i · position · frequency)."""
        turns = np.exp(1j * np.arange(len(x))[:, None] * self.frequencies)[:, None, :]
        if self.halves:
            turned = (x[..., : self.head_dim // 2] + 1j * x[..., self.head_dim // 2 :]) * turns
            return np.asarray(np.concatenate([turned.real, turned.imag], axis=-1))
        return np.asarray((x.copy().view(np.complex128) * turns).view(np.float64))


def factors_of(scaling: dict[str, Any], base: float, head_dim: int) -> Floats:
    """As transformers' modeling_rope_utils.py computes the frequencies, which are divided by these; in fp32, as files
    keep them."""
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "llama3":
        return np.full(1, scaling["factor"] if kind == "linear" else 1.0)
    wavelengths = 2 * np.pi * base ** (np.arange(0, head_dim, 2) / head_dim)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = (scaling["original_max_position_embeddings"] / wavelengths - low) / (high - low)
    between = 1 / ((1 - smooth) / scaling["factor"] + smooth)
    factors = np.where(smooth < 0, scaling["factor"], np.where(smooth > 1, 1, between))
    return factors.astype(np.float32).astype(np.float64)


def read_safetensors(path: Path) -> dict[str, Floats]:
    """By the description of the format; bf16 is the upper half of fp32."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    found = {}
    for name, said in json.loads(content[8:start]).items():
        if name != "__metadata__":
            raw = content[start + said["data_offsets"][0] : start + said["data_offsets"][1]]
            found[name] = decoded(raw, said["dtype"]).reshape(said["shape"])
    return found


def decoded(raw: bytes, dtype: str) -> Floats:
    if dtype == "BF16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[dtype]).astype(np.float64)
