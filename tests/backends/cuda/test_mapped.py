"""Words sent and results fetched, to the last word and no further; their kernels, compiled for a Hopper GPU."""

import re
from typing import Any

import pytest
import torch

from parkway.backends.cuda import mapped
from parkway.backends.cuda.device import Device
from tests.backends.cuda.compiled_apart import told_by
from tests.backends.cuda.interpreted import mend

if not torch.cuda.is_available():
    mend()

COUNTS = [1, 16, 1000, 1024, 1025, 3000]


def pinned(values: list[int]) -> torch.Tensor:
    made = Device.found().pinned((len(values),))
    made.numpy()[:] = values
    return made


@pytest.mark.parametrize("count", COUNTS)
def test_words_come_to_the_last_and_no_further(device: torch.device, count: int) -> None:
    words, tables = (torch.full((3001,), -1, dtype=torch.int32, device=device) for _ in range(2))
    mapped.send(words, pinned([*range(3001)]), count, tables, pinned([0]), pinned([7]), 0)
    assert words.tolist() == [*range(count), *[-1] * (3001 - count)]
    assert (tables == -1).all()


@pytest.mark.parametrize("changes", COUNTS)
def test_pages_come_to_their_places_alone(device: torch.device, changes: int) -> None:
    words = torch.full((3001,), -1, dtype=torch.int32, device=device)
    tables = torch.full((2, 3001), -1, dtype=torch.int32, device=device)
    places = [6001 - 2 * i for i in range(3000)]
    mapped.send(words, pinned([5]), 1, tables, pinned(places), pinned([*range(3000)]), changes)
    expected = [-1] * 6002
    for page, place in enumerate(places[:changes]):
        expected[place] = page
    assert tables.flatten().tolist() == expected
    assert words.tolist() == [5, *[-1] * 3000]


@pytest.mark.parametrize("count", COUNTS)
def test_results_come_to_the_last_and_no_further(device: torch.device, count: int) -> None:
    fetched = pinned([-1] * 3001)
    mapped.fetch(fetched, torch.arange(3001, dtype=torch.int32, device=device), count)
    if device.type == "cuda":
        torch.cuda.synchronize()
    assert fetched.tolist() == [*range(count), *[-1] * (3001 - count)]


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    """Kernel, bytes of shared memory and of stack, registers, PTX; each for several counts."""
    return told_by("compiled_mapped")


def test_no_count_needs_a_kernel_of_its_own(compiled: list[dict[str, Any]]) -> None:
    """Compiling one would hold up a step for a second."""
    for name in ("send_kernel", "fetch_kernel"):
        assert len({each["ptx"] for each in compiled if each["kernel"] == name}) == 1, name


def test_all_loads_are_under_way_before_the_first_store(compiled: list[dict[str, Any]]) -> None:
    for each in compiled:
        order = re.findall(r"(ld|st)\.global", each["ptx"])
        assert order == sorted(order), each["kernel"]
        assert order.count("ld") >= 8
        assert each["stack"] == 0
