"""Every candidate of the matrix products, compiled for a Hopper GPU without one: it fits and uses what it is for."""

from typing import Any

import pytest

from parkway.backends.cuda.linear_config import PLAIN, STREAM, LinearConfig
from tests.backends.cuda.compiled_apart import told_by

SHARED_BYTES = 227 * 1024
"""What one program may have; the multiprocessor has 228 KiB, of which each program takes 1 KiB more than it has."""
REGISTERS = 65536


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    """Operation, configuration, bytes of shared memory and stack, registers, and instructions by name."""
    return told_by("compiled_linear")


def _of(compiled: list[dict[str, Any]], kernel: int) -> list[tuple[LinearConfig, dict[str, Any]]]:
    pairs = [(LinearConfig(*each["config"]), each) for each in compiled]
    chosen = [(config, each) for config, each in pairs if config.kernel == kernel]
    assert {each["operation"] for _, each in chosen} == {"linear", "gated"}
    return chosen


def test_all_fit_and_none_spills(compiled: list[dict[str, Any]]) -> None:
    for each in compiled:
        assert each["shared"] <= SHARED_BYTES, each
        assert each["stack"] == 0, each
        assert each["griddepcontrol.wait"], each


def test_plain_tiles_use_the_matrix_unit_and_asynchronous_copies(compiled: list[dict[str, Any]]) -> None:
    for config, each in _of(compiled, PLAIN):
        assert each["wgmma.mma_async" if config.rows >= 64 else "mma.sync"], each
        assert each["cp.async.cg"], each


def test_streams_use_bulk_loads_and_so_many_programs_fit(compiled: list[dict[str, Any]]) -> None:
    for config, each in _of(compiled, STREAM):
        assert each["wgmma.mma_async"], each
        assert each["cp.async.bulk.tensor"], each
        threads = (config.warps + 4) * 32  # the loading warp comes with three idle ones
        assert config.programs * threads * each["registers"] <= REGISTERS, each
        assert config.programs * (each["shared"] + 1024) <= SHARED_BYTES + 1024, each
