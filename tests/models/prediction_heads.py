"""Prediction heads of tiny models: drawn into a folder, drafting with a family's own parts, and by the textbook."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from parkway.models.dense import Dense
from parkway.models.tensors import Pack
from tests.backends.rig import raw_tensor
from tests.checkpoints import write_weights
from tests.models.transformers_models import Tiny, drawn
from tests.models.whole_sequence import read_safetensors

Floats = npt.NDArray[np.float64]
WEIGHTS = "model.safetensors"


def with_head(tiny: Tiny, folder: Path, seed: int = 0) -> Path:
    """The folder that `tiny` was saved in, with a head whose layer has the shapes of the last one, which attends."""
    own, width = read_safetensors(folder / WEIGHTS), tiny.config.hidden_size
    last = f"model.layers.{tiny.config.num_hidden_layers - 1}."
    shapes: dict[str, tuple[int, ...]] = {
        name.replace(last, "mtp.layers.0."): values.shape for name, values in own.items() if name.startswith(last)
    }
    shapes["mtp.fc.weight"] = width, 2 * width
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        shapes[f"mtp.{name}.weight"] = (width,)
    random = np.random.default_rng(seed)
    head = {name: drawn(name, shape, tiny.family.name, random) for name, shape in shapes.items()}
    return holding(folder, {**own, **head})


def holding(folder: Path, tensors: Mapping[str, npt.NDArray[Any]]) -> Path:
    """The folder with these tensors, as float32."""
    write_weights(
        folder, {name: ("F32", values.shape, values.astype(np.float32).tobytes()) for name, values in tensors.items()}
    )
    return folder


def drafted(model: Dense, ops: Any, hidden: Any) -> Any:
    """Logits of the token after next. The step's tokens are the next ones of the rows that `hidden` is of; its
    positions are those of `hidden`."""
    head, epsilon = model.prediction_head, model.config.epsilon
    assert head
    embedded = ops.rms_norm(ops.embed(head.embedding), head.embedding_norm, epsilon)
    (x,) = ops.linear(embedded, head.from_embedding)
    x = ops.linear_add(ops.rms_norm(hidden, head.hidden_norm, epsilon), head.from_hidden, x)
    x = model.joined(ops, model.mix(ops, head.layer, x), head.layer.output, head.layer.attn_post_norm, x)
    x = ops.take(model.feed_forward(ops, head.layer, x))
    return ops.logits(ops.rms_norm(x, head.norm, epsilon), head.output)


class Drafting:
    """A model's head as a model of its own, for runners, on random rows by token in place of the model's."""

    def __init__(self, model: Dense, pack: Pack) -> None:
        head, c = model.prediction_head, model.config
        assert head
        rows = np.random.default_rng(1).standard_normal((c.vocabulary, c.width), np.float32)
        self._model, self._rows = model, pack.matrix(raw_tensor("rows", "BF16", rows))
        kv, attention = replace(c.kv, layers=c.kv.layers + 1), (head.layer.mixer.how,)
        self.config = replace(c, layers=1, kv=kv, attention=attention, kinds=("attention",), states=None)

    def forward(self, ops: Any) -> Any:
        return drafted(self._model, ops, ops.embed(self._rows))


class WholeHead:
    """A folder's head, written without a look at Parkway's: a whole sequence at a time, in float64, no pages."""

    def __init__(self, tiny: Tiny, folder: Path) -> None:
        self.said = tiny.config
        self.own = read_safetensors(folder / WEIGHTS)
        at = "mtp.layers.0.mlp.experts"
        for number, both in enumerate(self.own.get(f"{at}.gate_up_proj", [])):
            parts = *np.split(both, 2), self.own[f"{at}.down_proj"][number]
            self.own |= {
                f"{at}.{number}.{name}_proj.weight": part
                for name, part in zip(("gate", "up", "down"), parts, strict=True)
            }

    def hidden(self, rows: Floats) -> Floats:
        """Of what the last layer makes: what logits are made of."""
        return self._norm(rows, "model.norm")

    def logits(self, hidden: Floats, next_tokens: list[int]) -> Floats:
        """float64 [tokens, vocabulary]."""
        embedded = self._norm(self.own["model.embed_tokens.weight"][next_tokens], "mtp.pre_fc_norm_embedding")
        both = np.concatenate([embedded, self._norm(hidden, "mtp.pre_fc_norm_hidden")], axis=1)
        x = both @ self.own["mtp.fc.weight"].T
        x = x + self._attention(self._norm(x, "mtp.layers.0.input_layernorm"))
        normed = self._norm(x, "mtp.layers.0.post_attention_layernorm")
        x = x + (self._experts(normed) if getattr(self.said, "num_experts", 0) else self._gated(normed, "mlp"))
        return np.asarray(self._norm(x, "mtp.norm") @ self.own["lm_head.weight"].T)

    def _norm(self, x: Floats, name: str) -> Floats:
        root_mean_square = np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.said.rms_norm_eps)
        return np.asarray((1 + self.own[f"{name}.weight"]) * x / root_mean_square)

    def _times(self, x: Floats, name: str) -> Floats:
        return np.asarray(x @ self.own[f"mtp.layers.0.{name}.weight"].T)

    def _attention(self, x: Floats) -> Floats:
        tokens, lanes = len(x), self.said.head_dim
        q, gates = np.split(self._times(x, "self_attn.q_proj").reshape(tokens, -1, 2 * lanes), 2, axis=2)
        k, v = (self._times(x, f"self_attn.{name}_proj").reshape(tokens, -1, lanes) for name in "kv")
        q, k = (
            self._turned(self._norm(each, f"mtp.layers.0.self_attn.{name}_norm")) for name, each in (("q", q), ("k", k))
        )
        share = q.shape[1] // k.shape[1]
        scores = np.einsum("qhd,khd->hqk", q, k.repeat(share, axis=1)) / np.sqrt(lanes)
        scores[:, ~np.tri(tokens, dtype=bool)] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        seen = np.einsum("hqk,khd->qhd", weights, v.repeat(share, axis=1)) * sigmoid(gates)
        return self._times(seen.reshape(tokens, -1), "self_attn.o_proj")

    def _turned(self, x: Floats) -> Floats:
        """The first quarter of a head's lanes, in pairs as complex numbers, by position."""
        lanes = self.said.head_dim // 4
        frequencies = 10000.0 ** (-np.arange(0, lanes, 2) / lanes)
        turns = np.exp(1j * np.arange(len(x))[:, None] * frequencies)[:, None, :]
        pairs = (x[..., : lanes // 2] + 1j * x[..., lanes // 2 : lanes]) * turns
        return np.concatenate([pairs.real, pairs.imag, x[..., lanes:]], axis=-1)

    def _gated(self, x: Floats, at: str) -> Floats:
        gate = self._times(x, f"{at}.gate_proj")
        return self._times(gate * sigmoid(gate) * self._times(x, f"{at}.up_proj"), f"{at}.down_proj")

    def _experts(self, x: Floats) -> Floats:
        scores = self._times(x, "mlp.gate")
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        least = np.sort(weights, axis=1)[:, -self.said.num_experts_per_tok, None]
        weights = np.where(weights >= least, weights, 0)
        weights /= weights.sum(axis=1, keepdims=True)
        made = sigmoid(self._times(x, "mlp.shared_expert_gate")) * self._gated(x, "mlp.shared_expert")
        for expert in range(self.said.num_experts):
            made = made + weights[:, expert, None] * self._gated(x, f"mlp.experts.{expert}")
        return np.asarray(made)


def sigmoid(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))
