"""Every candidate of mixtures of experts, compiled for a Hopper GPU without one: it fits and uses what it is for."""

from typing import Any

import pytest

from parkway.backends.cuda import experts_router, nvrtc
from parkway.backends.cuda.experts_config import PLAIN, STREAM, ExpertsConfig
from parkway.backends.cuda.experts_quantised import lines
from tests.backends.cuda.compiled_apart import told_by
from tests.backends.cuda.offline import _resources

SHARED_BYTES = 227 * 1024
"""What one program may have."""
REGISTERS = 65536


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    """Name, configuration, bytes of shared memory and stack, registers, and instructions by name."""
    return told_by("compiled_experts")


def _products(compiled: list[dict[str, Any]], kernel: int) -> list[tuple[ExpertsConfig, dict[str, Any]]]:
    pairs = [(ExpertsConfig(*each["config"]), each) for each in compiled if each["config"]]
    chosen = [(config, each) for config, each in pairs if config.kernel == kernel]
    assert {each["name"] for _, each in chosen} == {"up", "down"}
    return chosen


def test_all_fit_and_none_spills(compiled: list[dict[str, Any]]) -> None:
    for each in compiled:
        assert each["shared"] <= SHARED_BYTES, each
        assert each["stack"] == 0, each
        assert each["griddepcontrol.wait"], each


def test_plain_tiles_use_the_matrix_unit_and_asynchronous_copies(compiled: list[dict[str, Any]]) -> None:
    for config, each in _products(compiled, PLAIN):
        tiles = config.up if each["name"] == "up" else config.down
        assert each["wgmma.mma_async" if tiles.outputs >= 64 else "mma.sync"], each
        assert each["cp.async.cg"], each


def test_streams_use_bulk_loads(compiled: list[dict[str, Any]]) -> None:
    for config, each in _products(compiled, STREAM):
        tiles = config.up if each["name"] == "up" else config.down
        assert each["wgmma.mma_async"], each
        assert each["cp.async.bulk.tensor"], each
        assert (tiles.warps + 4) * 32 * each["registers"] <= REGISTERS, each


@pytest.mark.parametrize("columns", [2048, 2880, 4096])
def test_a_router_fits_and_does_not_spill(columns: int) -> None:
    line, room = experts_router.line(columns), experts_router.shared_bytes(columns)
    assert room <= SHARED_BYTES
    cubin, said = nvrtc.compiled(experts_router.SOURCE, line, "sm_90a")
    assert not said
    stack, registers = _resources(cubin)
    assert stack == 0
    assert registers * 32 * -(-columns // 256) <= REGISTERS


@pytest.mark.parametrize("type_name", ["Q4_K", "MXFP4"])
def test_quantised_products_fit_and_none_spills(type_name: str) -> None:
    for line in lines(type_name):
        cubin, said = nvrtc.compiled("experts.cu", line, "sm_90a")
        assert not said
        stack, registers = _resources(cubin)
        assert stack == 0, line
        assert registers * 128 <= REGISTERS, line
