"""Delta nets' kernels, compiled for a Hopper GPU without one: what they need and what they consist of."""

from typing import Any

import pytest

from tests.backends.cuda.compiled_apart import told_by


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    """Kernel, bytes of shared memory and of stack, registers, PTX; the rule once for each configuration."""
    return told_by("compiled_delta")


def named(compiled: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    found = [each for each in compiled if each["kernel"] == name]
    assert found
    return found


def test_none_spills(compiled: list[dict[str, Any]]) -> None:
    for each in compiled:
        assert each["stack"] == 0, each["kernel"]


def test_the_next_block_is_on_its_way_while_one_is_computed(compiled: list[dict[str, Any]]) -> None:
    for each in named(compiled, "rule"):
        assert "cp.async.cg" in each["ptx"]


def test_products_go_through_the_matrix_unit(compiled: list[dict[str, Any]]) -> None:
    for each in (*named(compiled, "prepare"), *named(compiled, "rule")):
        assert "mma.sync" in each["ptx"]
        assert "fma.rn.f32" in each["ptx"] or each["kernel"] == "rule"


def test_two_programs_of_the_rule_fit_a_multiprocessor(compiled: list[dict[str, Any]]) -> None:
    for each in named(compiled, "rule"):
        assert 2 * (each["shared"] + 1024) <= 228 * 1024
        assert 2 * 128 * each["registers"] <= 65536


def test_each_waits_for_the_kernel_before_it(compiled: list[dict[str, Any]]) -> None:
    for each in compiled:
        waits, begins = (each["ptx"].find(f"griddepcontrol.{what}") for what in ("wait", "launch_dependents"))
        assert 0 < waits < begins < each["ptx"].find("st.global"), each["kernel"]


def test_no_float_is_added_across_programs(compiled: list[dict[str, Any]]) -> None:
    words = {line.split()[0].split(".")[0] for each in compiled for line in each["ptx"].splitlines() if line.strip()}
    assert not words & {"atom", "red"}
