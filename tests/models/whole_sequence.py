"""Llama once more, written without a look at Parkway's: a whole sequence at a time, float64, no pages, no cache."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader
from gguf.quants import dequantize

Floats = npt.NDArray[np.float64]


class WholeSequence:
    """A Llama file's forward pass by the textbook. Rotary pairs are neighbours, as in all of llama.cpp's files."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self.weights: dict[str, Floats] = {
            tensor.name: dequantize(tensor.data, tensor.tensor_type).astype(np.float64) for tensor in reader.tensors
        }
        fields = {key: field.contents() for key, field in reader.fields.items()}
        self.layers = fields["llama.block_count"]
        self.heads, self.kv_heads = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
        self.base, self.epsilon = fields["llama.rope.freq_base"], fields["llama.attention.layer_norm_rms_epsilon"]

    def logits(self, token_ids: list[int]) -> Floats:
        """float64 [tokens, vocabulary]."""
        x = self.weights["token_embd.weight"][token_ids]
        for layer in range(self.layers):
            x = x + self._attention(self._norm(x, f"blk.{layer}.attn_norm"), layer)
            x = x + self._feed_forward(self._norm(x, f"blk.{layer}.ffn_norm"), layer)
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        return np.asarray(self._norm(x, "output_norm") @ head.T)

    def _norm(self, x: Floats, name: str) -> Floats:
        root_mean_square = np.sqrt((x**2).sum(axis=-1, keepdims=True) / x.shape[-1] + self.epsilon)
        return np.asarray(self.weights[f"{name}.weight"] * (x / root_mean_square))

    def _feed_forward(self, x: Floats, layer: int) -> Floats:
        gate, up, down = (self.weights[f"blk.{layer}.ffn_{part}.weight"] for part in ("gate", "up", "down"))
        gates = x @ gate.T
        return np.asarray((gates * (1 / (1 + np.exp(-gates))) * (x @ up.T)) @ down.T)

    def _attention(self, x: Floats, layer: int) -> Floats:
        q, k, v, o = (self.weights[f"blk.{layer}.attn_{part}.weight"] for part in ("q", "k", "v", "output"))
        queries, keys = self._rotated(x @ q.T, self.heads), self._rotated(x @ k.T, self.kv_heads)
        values = (x @ v.T).reshape(len(x), self.kv_heads, -1)
        heads = [self._one_head(queries[:, h], *self._shared(keys, values, h)) for h in range(self.heads)]
        return np.asarray(np.concatenate(heads, axis=1) @ o.T)

    def _shared(self, keys: Floats, values: Floats, head: int) -> tuple[Floats, Floats]:
        kv_head = head * self.kv_heads // self.heads
        return keys[:, kv_head], values[:, kv_head]

    def _one_head(self, q: Floats, k: Floats, v: Floats) -> Floats:
        scores = q @ k.T / np.sqrt(q.shape[1])
        scores[np.triu_indices(len(q), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1)[:, None])
        return np.asarray(weights @ v / weights.sum(axis=1)[:, None])

    def _rotated(self, x: Floats, heads: int) -> Floats:
        """Neighbouring lanes as complex numbers, turned by e^(i · position · frequency)."""
        pairs = x.reshape(len(x), heads, -1).copy().view(np.complex128)
        lanes = pairs.shape[2]
        frequencies = np.array([self.base ** (-lane / lanes) for lane in range(lanes)])
        turns = np.exp(1j * np.arange(len(x))[:, None] * frequencies)
        return np.asarray((pairs * turns[:, None, :]).view(np.float64))
