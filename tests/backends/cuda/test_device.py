"""Copies as the driver is asked for them, without a device: addresses, bytes, the stream, and what it refuses."""

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cuda.bindings import driver

from parkway.backends.cuda import device
from parkway.backends.cuda.device import Device, capturing


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What the driver was asked for; it refuses every stream but 7."""
    made: list[tuple[int, ...]] = []

    def copy(*asked: int) -> tuple[driver.CUresult]:
        made.append(asked)
        return (driver.CUresult.CUDA_SUCCESS if asked[-1] == 7 else driver.CUresult.CUDA_ERROR_INVALID_HANDLE,)

    monkeypatch.setattr(device, "enter_device", lambda: None)
    monkeypatch.setattr(driver, "cuMemcpyAsync", copy)
    return made


def test_a_page_is_one_call_of_the_driver(asked: list[tuple[int, ...]]) -> None:
    pages, host = torch.zeros(4, 2, 3, dtype=torch.bfloat16), torch.zeros(2, 3, dtype=torch.bfloat16)
    stream: Any = SimpleNamespace(cuda_stream=7)
    Device("cuda").copy(host, pages[2], stream)
    assert asked == [(host.data_ptr(), pages.data_ptr() + 24, 12, 7)]


def test_a_copy_that_is_refused_is_said(asked: list[tuple[int, ...]]) -> None:
    page = torch.zeros(3)
    stream: Any = SimpleNamespace(cuda_stream=8)
    with pytest.raises(RuntimeError, match=r"^a copy of 12 bytes could not be queued: CUDA_ERROR_INVALID_HANDLE$"):
        Device("cuda").copy(page, page, stream)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="captures graphs")
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_a_graph_that_has_become_garbage_spoils_no_capture() -> None:
    """As when a model is loaded where another was: what held the old graphs holds itself."""
    stream, values = torch.cuda.Stream(), torch.zeros(4, device="cuda")
    for _ in range(3):
        graph = torch.cuda.CUDAGraph()
        with capturing(graph, stream):
            values.add_(1)
            cycles: Any = [[] for _ in range(100_000)]
            for cycle in cycles:
                cycle.append(cycle)
            del cycle, cycles
        graph.replay()
        held: Any = [graph]
        held.append(held)
        del graph, held
    assert values.tolist() == [3.0] * 4
    assert gc.isenabled()
