"""What recording a forward pass makes, and what it refuses."""

from typing import Any

import pytest

from parkway.backends import KvShape
from parkway.backends.cpu.library import Memory
from parkway.backends.cpu.recorder import Machine, Recorder, layer_bytes
from parkway.errors import Unsupported
from tests.backends.rig import ISAS, PLAIN, CpuPack, Drawn

ONE_LAYER = KvShape(layers=1, kv_heads=2, head_dim=32)


def recorder(activations: str = "int8", kv: KvShape = ONE_LAYER) -> Recorder:
    return Recorder(Machine(ISAS[-1], activations, 4, 4, 64, 4, kv, Memory(layer_bytes(kv, activations), "pages")))


def drawn() -> Drawn:
    return Drawn(CpuPack())


def test_rows_are_quantised_once_and_only_for_matrices_that_want_it() -> None:
    ops, weights = recorder(), drawn()
    x = ops.embed(weights.table(4, 64))
    lengths = []
    for kinds in (["F16"], ["Q4_0"], ["Q8_0", "Q4_1"]):
        ops.linear(x, tuple(weights.matrix(kind, 32, 64) for kind in kinds))
        lengths.append(len(ops.recorded))
    assert lengths == [2, 4, 5]


def test_a_norm_quantises_what_it_makes() -> None:
    ops, weights = recorder(), drawn()
    normed = ops.rms_norm(ops.embed(weights.table(4, 64)), weights.vector(64), 1e-5)
    before = len(ops.recorded)
    ops.linear(normed, (weights.matrix("Q4_0", 32, 64),))
    assert len(ops.recorded) == before + 1


def test_float_activations_quantise_nothing() -> None:
    ops, weights = recorder("f32"), drawn()
    x = ops.embed(weights.table(4, 64))
    ops.linear(x, (weights.matrix("Q4_0", 32, 64),))
    assert not x.quantised


def test_what_comes_after_take_is_computed_for_logit_rows_only() -> None:
    ops, weights = recorder(), drawn()
    taken = ops.take(ops.embed(weights.table(4, 64)))
    normed = ops.rms_norm(taken, weights.vector(64), 1e-5)
    made = [
        normed,
        *ops.linear(normed, (weights.matrix("Q4_0", 64, 64),)),
        ops.logits(normed, weights.matrix("Q4_0", 64, 64)),
        ops.linear_add(normed, weights.matrix("Q4_0", 64, 64), taken),
        ops.gated(normed, weights.matrix("Q4_0", 64, 64), weights.matrix("Q4_0", 64, 64)),
    ]
    assert all(value.on_logit_rows for value in made)


def test_widths_that_do_not_fit_are_refused() -> None:
    ops, weights = recorder(), drawn()
    with pytest.raises(Unsupported, match="a matrix with 96 columns can't take rows of 64 values"):
        ops.linear(ops.embed(weights.table(4, 64)), (weights.matrix("Q4_0", 32, 96),))


@pytest.mark.parametrize("head_dim", [24, 272])
def test_heads_that_no_kernel_can_take_are_refused(head_dim: int) -> None:
    ops: Any = recorder(kv=KvShape(1, 2, head_dim))
    with pytest.raises(Unsupported, match=f"heads of {head_dim} lanes; the kernels need a multiple of 16 up to 256"):
        ops.attention(ops.embed(drawn().table(4, 64)), PLAIN)


@pytest.mark.parametrize(("activations", "size"), [("int8", 2), ("f32", 4)])
def test_a_layer_of_a_page_has_keys_and_values_of_64_tokens(activations: str, size: int) -> None:
    assert layer_bytes(KvShape(5, 3, 64), activations) == 2 * 3 * 64 * 64 * size
