"""Each operation of the CPU backend against the reference: values, with a tolerance for each kind of activations."""

from collections.abc import Sequence

import numpy as np
import pytest

from parkway.backends.reference import Floats, ReferenceStep
from tests.backends.cases import ATTENTION_CASES, ROW_CASES, Case
from tests.backends.rig import Float32s, Reference, Rig, chats, cpu_rig, only

ROWS = (*range(1, 10), 17, 64, 100)
TOLERANCES = {"f32": 3e-6, "int8": 3e-6}
ATTENTION_TOLERANCES = {"f32": 3e-6, "int8": 2e-3}
"""Errors relative to a row's largest value. With int8, attention is what sees a rounding of its own: KV is fp16."""


def assert_close(got: Sequence[Float32s], wanted: Sequence[Floats], tolerance: float) -> None:
    for values, exact in zip(got, wanted, strict=True):
        real, padding = values[:, : exact.shape[1]], values[:, exact.shape[1] :]
        errors = np.abs(real - exact).max(axis=1) / (np.abs(exact).max(axis=1) + 1e-30)
        assert errors.max() < tolerance
        assert not padding.any()


def both(case: Case, activations: str) -> tuple[Rig, Reference]:
    return (
        cpu_rig(case.record, activations=activations, **case.machine),
        Reference(case.record, activations=activations, **case.machine),
    )


@pytest.mark.parametrize("activations", ["int8", "f32"])
@pytest.mark.parametrize("case", ROW_CASES.values(), ids=ROW_CASES.keys())
def test_operations_on_rows_compute_what_the_reference_says(case: Case, activations: str) -> None:
    rig, reference = both(case, activations)
    for rows in ROWS:
        assert_close(rig.run(chats(rows)), reference.run(chats(rows)), TOLERANCES[activations])


@pytest.mark.parametrize("activations", ["int8", "f32"])
@pytest.mark.parametrize("case", ATTENTION_CASES.values(), ids=ATTENTION_CASES.keys())
def test_attention_computes_what_the_reference_says(case: Case, activations: str) -> None:
    rig, reference = both(case, activations)
    prefill = chats(197, 64, 3)
    assert_close(rig.run(prefill), reference.run(prefill), ATTENTION_TOLERANCES[activations])
    for decoding in (only(prefill, [196, 260, 263]), only(prefill, [130]), only(prefill, [263, 5, 200, 128, 127, 129])):
        assert_close(rig.run(decoding), reference.run(decoding), ATTENTION_TOLERANCES[activations])


def test_take_takes_the_rows_that_were_asked_for_in_their_order() -> None:
    rig, reference = both(ROW_CASES["head"], "f32")
    for wanted in ([4], [6, 0, 3], [2, 2, 5, 1], []):
        step = ReferenceStep(range(7), range(7), [(0,)] * 7, wanted)
        assert [made.shape[0] for made in rig.run(step)] == [len(wanted)]
        if wanted:
            assert_close(rig.run(step), reference.run(step), TOLERANCES["f32"])
