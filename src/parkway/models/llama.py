"""Llama 2/3, Mistral, SmolLM2 and their like: RMS norm, rotary grouped attention, SwiGLU."""

from typing import Any, Protocol

from parkway.backends import Operations
from parkway.errors import BadFile
from parkway.models.config import dense_config
from parkway.weights.checkpoint import Checkpoint, RawTensor


class Pack(Protocol):
    """How a backend takes weights in."""

    def matrix(self, tensor: RawTensor) -> Any: ...

    def vector(self, tensor: RawTensor) -> Any: ...


class Llama:
    """A forward pass and its packed weights. Raises BadFile naming a tensor that is missing or has the wrong shape."""

    def __init__(self, checkpoint: Checkpoint, pack: Pack) -> None:
        self.config = dense_config(checkpoint)
        self._checkpoint, self._pack = checkpoint, pack
        c, q_width, kv_width = self.config, self._q_width, self._kv_width
        self.embedding = self._matrix("token_embd", c.vocabulary, c.width)
        self.layers = [
            {
                "attn_norm": self._vector(f"blk.{i}.attn_norm", c.width),
                "q": self._matrix(f"blk.{i}.attn_q", q_width, c.width),
                "k": self._matrix(f"blk.{i}.attn_k", kv_width, c.width),
                "v": self._matrix(f"blk.{i}.attn_v", kv_width, c.width),
                "o": self._matrix(f"blk.{i}.attn_output", c.width, q_width),
                "ffn_norm": self._vector(f"blk.{i}.ffn_norm", c.width),
                "gate": self._matrix(f"blk.{i}.ffn_gate", c.ffn_width, c.width),
                "up": self._matrix(f"blk.{i}.ffn_up", c.ffn_width, c.width),
                "down": self._matrix(f"blk.{i}.ffn_down", c.width, c.ffn_width),
            }
            for i in range(c.layers)
        ]
        self.norm = self._vector("output_norm", c.width)
        tied = "output.weight" not in checkpoint.tensors
        self.head = self.embedding if tied else self._matrix("output", c.vocabulary, c.width)
        del self._checkpoint, self._pack

    def forward(self, ops: Operations) -> Any:
        """Logits [logit rows, vocabulary] of the step's rows."""
        epsilon = self.config.epsilon
        x = ops.embed(self.embedding)
        for i, layer in enumerate(self.layers):
            q, k, v = ops.linear(ops.rms_norm(x, layer["attn_norm"], epsilon), layer["q"], layer["k"], layer["v"])
            attended = ops.attention(ops.rope_and_write(q, k, v, i), i)
            if i == len(self.layers) - 1:  # rows that nobody wants logits of have done their part: they wrote K and V
                x, attended = ops.take(x), ops.take(attended)
            x = ops.linear_add(attended, layer["o"], x)
            hidden = ops.gated(ops.rms_norm(x, layer["ffn_norm"], epsilon), layer["gate"], layer["up"])
            x = ops.linear_add(hidden, layer["down"], x)
        return ops.linear(ops.rms_norm(x, self.norm, epsilon), self.head)[0]

    @property
    def _q_width(self) -> int:
        return self.config.heads * self.config.kv.head_dim

    @property
    def _kv_width(self) -> int:
        return self.config.kv.kv_heads * self.config.kv.head_dim

    def _matrix(self, name: str, rows: int, columns: int) -> Any:
        return self._pack.matrix(self._tensor(name, (rows, columns)))

    def _vector(self, name: str, width: int) -> Any:
        return self._pack.vector(self._tensor(name, (width,)))

    def _tensor(self, name: str, shape: tuple[int, ...]) -> RawTensor:
        tensor = self._checkpoint.tensors.get(f"{name}.weight")
        if tensor is None:
            raise BadFile(self._checkpoint.path, f"tensor {name}.weight is missing")
        if tensor.shape != shape:
            raise BadFile(self._checkpoint.path, f"tensor {name}.weight has shape {tensor.shape}, not {shape}")
        return tensor
