"""Every operation in the shapes that it is tested in. A case runs on any table of operations and any pack."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parkway.backends import Activation, Attention, HeadNorms, KvShape, Rope
from parkway.backends.quant import SUPPORTED, block_columns
from tests.backends.rig import Drawn, Record

TABLE_ROWS = 320
Rows = Callable[[Drawn, int, int], Any]


@dataclass(frozen=True)
class Case:
    record: Record
    machine: dict[str, Any] = field(default_factory=dict)


def _norm(width: int) -> Record:
    def record(ops: Any, drawn: Drawn) -> Sequence[Any]:
        return [ops.rms_norm(ops.embed(drawn.table(TABLE_ROWS, width)), drawn.vector(width), 1e-5)]

    return record


def _linear(columns: int, outputs: Sequence[int], kinds: Sequence[str]) -> Record:
    def record(ops: Any, drawn: Drawn) -> Sequence[Any]:
        x = ops.embed(drawn.table(TABLE_ROWS, columns))
        weights = [drawn.matrix(kind, rows, columns) for rows, kind in zip(outputs, kinds, strict=True)]
        return list(ops.linear(x, drawn.together(*weights)))

    return record


def _biased(ops: Any, drawn: Drawn) -> Sequence[Any]:
    x = ops.embed(drawn.table(TABLE_ROWS, 96))
    heights = {"Q4_1": 64, "BF16": 33, "F32": 17}
    weights = [drawn.matrix(kind, rows, 96, biased=kind != "F32") for kind, rows in heights.items()]
    return list(ops.linear(x, drawn.together(*weights)))


def _biased_add(ops: Any, drawn: Drawn) -> Sequence[Any]:
    x, residual = ops.embed(drawn.table(TABLE_ROWS, 160)), ops.embed(drawn.table(TABLE_ROWS, 96))
    return [ops.linear_add(x, drawn.matrix("Q8_0", 96, 160, biased=True), residual)]


def _normed_linear(ops: Any, drawn: Drawn) -> Sequence[Any]:
    x = ops.rms_norm(ops.embed(drawn.table(TABLE_ROWS, 96)), drawn.vector(96), 1e-5)
    return list(ops.linear(x, drawn.together(drawn.matrix("Q4_1", 80, 96))))


def _linear_add(ops: Any, drawn: Drawn) -> Sequence[Any]:
    x, residual = ops.embed(drawn.table(TABLE_ROWS, 160)), ops.embed(drawn.table(TABLE_ROWS, 96))
    return [ops.linear_add(x, drawn.matrix("Q4_0", 96, 160), residual)]


def _gated(kind: str, activation: Activation = "silu") -> Record:
    def record(ops: Any, drawn: Drawn) -> Sequence[Any]:
        x = ops.embed(drawn.table(TABLE_ROWS, 64))
        return [ops.gated(x, drawn.matrix(kind, 160, 64), drawn.matrix(kind, 160, 64), activation)]

    return record


def _scaled(ops: Any, drawn: Drawn) -> Sequence[Any]:
    return [ops.embed(drawn.matrix("Q8_0", TABLE_ROWS, 96), 9.75)]


def _norm_add(ops: Any, drawn: Drawn) -> Sequence[Any]:
    x, residual = ops.embed(drawn.table(TABLE_ROWS, 96)), ops.embed(drawn.table(TABLE_ROWS, 96))
    return [ops.norm_add(x, drawn.vector(96), 1e-5, residual)]


def _opened(width: int) -> Record:
    """A gate for each value, or one for each row; then the other operation on two rows."""

    def record(ops: Any, drawn: Drawn) -> Sequence[Any]:
        x, residual = ops.embed(drawn.table(TABLE_ROWS, 96)), ops.embed(drawn.table(TABLE_ROWS, 96))
        (gate,) = ops.linear(residual, drawn.together(drawn.matrix("F32", width, 96)))
        return [ops.add(ops.sigmoid_gate(x, gate), residual)]

    return record


def _capped_head(ops: Any, drawn: Drawn) -> Sequence[Any]:
    x = ops.take(ops.embed(drawn.calm_table(TABLE_ROWS, 96)))
    return [ops.logits(x, drawn.matrix("Q8_0", 128, 96), 30.0)]


def _head(ops: Any, drawn: Drawn) -> Sequence[Any]:
    x = ops.take(ops.embed(drawn.table(TABLE_ROWS, 96)))
    return [ops.logits(ops.rms_norm(x, drawn.vector(96), 1e-6), drawn.matrix("Q8_0", 131, 96))]


def _attention(
    heads: int,
    kv_heads: int,
    head_dim: int,
    rope: Rope | None,
    kind_of_rows: Rows = Drawn.calm_table,
    *,
    sinks: bool = False,
    **how: Any,
) -> Case:
    def record(ops: Any, drawn: Drawn) -> Sequence[Any]:
        q, k, v = (ops.embed(kind_of_rows(drawn, TABLE_ROWS, n * head_dim)) for n in (heads, kv_heads, kv_heads))
        scale = how.get("scale", head_dim**-0.5)
        layer = Attention(1, heads, rope=rope, sinks=drawn.vector(heads) if sinks else None, **how | {"scale": scale})
        return [ops.attention(ops.rope_and_write(q, k, v, layer), layer)]

    return Case(record, {"heads": heads, "kv": KvShape(2, kv_heads, head_dim)})


def _normed_heads(heads: int, kv_heads: int, head_dim: int) -> Case:
    """Heads of very different sizes, which norms make equal before they are turned."""

    def record(ops: Any, drawn: Drawn) -> Sequence[Any]:
        q, k = (ops.embed(drawn.table(TABLE_ROWS, n * head_dim)) for n in (heads, kv_heads))
        v = ops.embed(drawn.calm_table(TABLE_ROWS, kv_heads * head_dim))
        norms = HeadNorms(drawn.vector(head_dim), drawn.vector(head_dim), 1e-6)
        layer = Attention(1, heads, head_dim**-0.5, Rope(1000000.0, head_dim, "halves"), norms)
        return [ops.attention(ops.rope_and_write(q, k, v, layer), layer)]

    return Case(record, {"heads": heads, "kv": KvShape(2, kv_heads, head_dim)})


ROW_CASES = {
    **{f"rms_norm {width}": Case(_norm(width)) for width in (32, 96, 576, 1632)},
    **{f"linear {kind}": Case(_linear(max(96, 2 * block_columns(kind)), (50,), (kind,))) for kind in SUPPORTED},
    "linear of three": Case(_linear(288, (64, 16, 33), ("Q4_1", "Q8_0", "F16"))),
    "linear of many blocks": Case(_linear(1280, (17, 16, 20), ("Q4_0", "Q8_0", "Q6_K"))),
    "linear one block": Case(_linear(32, (17,), ("Q4_0",))),
    "linear normed": Case(_normed_linear),
    "linear biased": Case(_biased),
    "linear_add biased": Case(_biased_add),
    "linear_add": Case(_linear_add),
    **{f"gated {kind}": Case(_gated(kind)) for kind in ("Q4_1", "F32")},
    "gated gelu": Case(_gated("Q4_1", "gelu")),
    "gated clamped": Case(_gated("F32", "clamped")),
    "embedding scaled": Case(_scaled),
    "norm_add": Case(_norm_add),
    "gate by value": Case(_opened(96)),
    "gate by row": Case(_opened(1)),
    "head capped": Case(_capped_head),
    "head": Case(_head),
}
ATTENTION_CASES = {
    f"attention {heads}/{kv_heads} x {dim} {rope.pairs} {rope.dims}": _attention(heads, kv_heads, dim, rope)
    for heads, kv_heads, dim, rope in (
        (9, 3, 64, Rope(10000.0, 64, "neighbours")),
        (4, 4, 32, Rope(10000.0, 32, "halves")),
        (8, 2, 80, Rope(500000.0, 80, "neighbours")),
        (8, 1, 128, Rope(10000.0, 64, "halves")),
        (8, 2, 256, Rope(1000000.0, 128, "neighbours")),
        (14, 2, 16, Rope(10000.0, 8, "neighbours")),
        (4, 2, 32, Rope(10000.0, 32, "halves", np.linspace(1, 9, 16, dtype=np.float32))),
    )
}
ATTENTION_CASES |= {
    f"attention of normed heads {heads}/{kv_heads} x {dim}": _normed_heads(heads, kv_heads, dim)
    for heads, kv_heads, dim in ((8, 2, 32), (6, 2, 80))
}
NEAR = Rope(10000.0, 32, "halves")
ATTENTION_CASES |= {
    **{f"attention of the last {window}": _attention(4, 2, 32, NEAR, window=window) for window in (1, 20, 64, 130)},
    "attention capped": _attention(4, 2, 32, NEAR, soft_cap=2.5, scale=0.5),
    "attention with sinks": _attention(4, 2, 32, NEAR, sinks=True),
    "attention of the last 30 with sinks": _attention(8, 2, 64, Rope(1e4, 64, "halves"), sinks=True, window=30),
    "attention without positions": _attention(4, 2, 32, None),
    "attention of a rope with a magnitude": _attention(4, 2, 32, Rope(1e4, 32, "halves", magnitude=1.25)),
}
STEEP = {"attention of steep scores": _attention(4, 2, 32, Rope(10000.0, 32, "neighbours"), Drawn.table)}
"""Scores of hundreds, where float32 is far from the exact value; only bits can be compared."""
PAGED_CASES = ATTENTION_CASES | STEEP
CASES = ROW_CASES | PAGED_CASES
