"""The sampler's kernels, compiled for a Hopper GPU without one."""

from typing import Any

import pytest

from tests.backends.cuda.compiled_apart import told_by

WHOLE_ROWS = ["largest_kernel", "sums_kernel", "choice_kernel", "allow_kernel"]
KERNELS = [*WHOLE_ROWS, "move_kernel", "chain_kernel", "adopt_kernel", "tell_kernel"]
STACK_BYTES = 32
"""Some compilers put a few addresses aside, outside every loop."""
CHAIN_STACK_BYTES = 96
"""… and numbers of a chain's steps."""


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    """Kernel, vocabulary, bytes of shared memory and of stack, registers, PTX."""
    return told_by("compiled_sample")


def test_all_fit_and_hardly_anything_spills(compiled: list[dict[str, Any]]) -> None:
    assert [each["kernel"] for each in compiled] == [name for name in KERNELS for _ in range(2)]
    for each in compiled:
        assert each["stack"] <= (CHAIN_STACK_BYTES if each["kernel"] == "chain_kernel" else STACK_BYTES), each
        assert each["shared"] < 32 * 1024, each


def test_rows_of_aligned_logits_are_loaded_16_bytes_at_a_time(compiled: list[dict[str, Any]]) -> None:
    whole = [each for each in compiled if each["kernel"] in WHOLE_ROWS]
    assert all(("ld.global.v4.b32" in each["ptx"]) == (each["vocabulary"] % 16 == 0) for each in whole)


def test_each_waits_before_it_reads_and_then_lets_the_next_begin(compiled: list[dict[str, Any]]) -> None:
    for each in compiled:
        waits, begins = (each["ptx"].find(f"griddepcontrol.{what}") for what in ("wait", "launch_dependents"))
        assert 0 < waits < begins < each["ptx"].find("ld.global"), each


def test_no_float_is_added_across_programs(compiled: list[dict[str, Any]]) -> None:
    assert not any(f".add.{kind}" in each["ptx"] for each in compiled for kind in ("f16", "bf16", "f32", "f64"))


def test_an_edit_is_not_fused(compiled: list[dict[str, Any]]) -> None:
    moves = [each["ptx"] for each in compiled if each["kernel"] == "move_kernel"]
    assert all("mul" in ptx and "fma." not in ptx for ptx in moves)
