"""Attention's and the rows' kernels, compiled for a Hopper GPU without one: what they need and what they consist of."""

from typing import Any

import pytest

from parkway.backends.cuda.device import AHEAD
from tests.backends.cuda.compiled_apart import told_by

SHARED_BYTES = 227 * 1024


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    """Kernel, config, shape, bytes of shared memory and of stack, registers, PTX."""
    return told_by("compiled_attention")


def named(compiled: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    found = [each for each in compiled if each["kernel"] in names]
    assert {each["kernel"] for each in found} == set(names)
    return found


def test_all_fit_and_none_spills(compiled: list[dict[str, Any]]) -> None:
    for each in compiled:
        # What few programs need after their walk, and the widest heads for a last page, is put aside: addresses.
        wide = each["kernel"] == "many" and each["shape"][2] == 256
        aside = 160 if wide else 32 if each["kernel"] == "few" else 0
        assert each["stack"] <= aside, each
        assert each["shared"] <= SHARED_BYTES, each


def test_three_programs_of_few_or_two_wide_ones_fit_a_multiprocessor(compiled: list[dict[str, Any]]) -> None:
    for each in named(compiled, "few"):
        _, _, warps, _, limit = each["config"]
        if not limit:  # heads so wide that a multiprocessor's shared memory is one program's
            assert each["shape"][2] > 128
            continue
        programs = 3 if warps == 4 else 2
        assert programs * (each["shared"] + 1024) <= 228 * 1024, each
        assert programs * warps * 32 * each["registers"] <= 65536, each


def test_few_rows_take_small_tiles_and_many_rows_the_instructions_of_four_warps(compiled: list[dict[str, Any]]) -> None:
    for each in named(compiled, "few"):
        assert "mma.sync" in each["ptx"]
        assert "wgmma" not in each["ptx"]
    for each in named(compiled, "many"):
        assert "wgmma.mma_async" in each["ptx"]


def test_keys_and_values_come_ahead_and_whole_pages_in_bulk(compiled: list[dict[str, Any]]) -> None:
    for each in named(compiled, "few", "many"):
        assert "cp.async.cg.shared.global" in each["ptx"] or each["kernel"] == "many"
        assert ("cp.async.bulk.tensor" in each["ptx"]) == (each["kernel"] == "many")


def test_rows_are_loaded_16_bytes_at_a_time(compiled: list[dict[str, Any]]) -> None:
    for each in named(compiled, "_embed", "_take", "_rms_norm"):
        assert "ld.global.v4.b32" in each["ptx"], each["kernel"]


def test_each_waits_before_it_reads_rows_and_lets_the_next_begin_then_or_first(compiled: list[dict[str, Any]]) -> None:
    assert [each["kernel"] for each in compiled if each.get("pdl") == AHEAD]
    for each in compiled:
        waits, begins = (each["ptx"].find(f"griddepcontrol.{what}") for what in ("wait", "launch_dependents"))
        earlier, later = (begins, waits) if each.get("pdl") == AHEAD else (waits, begins)
        first = "cp.async" if each["kernel"] in ("few", "many") else "st.global"
        assert 0 < earlier < later < each["ptx"].find(first), each["kernel"]


def test_no_float_is_added_across_programs(compiled: list[dict[str, Any]]) -> None:
    added = [line.split(maxsplit=1)[-1] for each in compiled for line in each["ptx"].splitlines() if "atom." in line]
    assert added
    assert all(".add.u32" in line for line in added)
