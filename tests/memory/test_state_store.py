"""States of slots: their memory, and what is said where there is too little."""

import math
from types import SimpleNamespace

import psutil
import pytest
import torch

from parkway.backends import StateShape
from parkway.backends.cpu.recorder_states import slot_bytes
from parkway.backends.cuda import delta
from parkway.errors import NoRoom
from parkway.memory import cuda_state_store
from parkway.memory.state_store import StateStore

SHAPE = StateShape(layers=2, k_heads=2, v_heads=4, k_dim=16, v_dim=32, taps=4)


def test_memory_holds_every_slot() -> None:
    store = StateStore(3, 4096)
    assert store.bytes == store.memory.size_bytes == 3 * 4096


def test_states_are_copied_to_checkpoints_and_back() -> None:
    store = StateStore(2, 64, checkpoints=3)
    assert (store.checkpoints, store.bytes) == (3, 5 * 64)
    states = store.memory.array().reshape(5, 64)
    states[0], states[1] = 7, 8
    store.keep(slot=0, checkpoint=2)
    states[0] = 9
    store.begin(slot=1, checkpoint=2)
    assert [int(each[0]) for each in states] == [9, 7, 0, 0, 7]
    assert (states == states[:, :1]).all(), "whole"


def test_a_slot_has_matrices_a_block_of_rows_and_inputs() -> None:
    matrices, block, inputs = 4 * 16 * 32, 16 * (2 * 16 + 4 * 32 + 4), 3 * (2 * 2 * 16 + 4 * 32)
    assert slot_bytes(SHAPE) == 2 * (matrices + block + inputs) * 4


def test_too_many_slots_are_refused_with_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=5 * 2**20))
    with pytest.raises(NoRoom, match=r"--parallel 8: .* need 16 MiB, 5 MiB are free; at most 2 chats fit"):
        StateStore(8, 2 * 2**20)


def test_states_on_the_device_are_as_large_as_a_slot_says(device: torch.device) -> None:
    states = cuda_state_store.allocate(3, SHAPE, device)
    parts = (states.matrices, states.keys, states.wrongs, states.gains, states.inputs)
    assert sum(part.nbytes for part in parts) == 3 * delta.slot_bytes(SHAPE)
    assert all(part.shape[:2] == (3, 2) for part in parts)
    assert states.matrices.shape[2:] == (4, 16, 32)
    assert math.prod(states.inputs.shape[2:]) == 3 * (2 * 2 * 16 + 4 * 32)


def test_a_device_that_is_full_says_what_fits(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch, "empty", full)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (delta.slot_bytes(SHAPE) * 5, 0))
    with pytest.raises(NoRoom, match=r"--parallel 9: .* at most 5 chats fit"):
        cuda_state_store.allocate(9, SHAPE, device)
