"""Devices whose queues run beside each other, for tests of what waits for what: a real GPU, and queues run here.

The queues here hold back everything that may wait and run it in the order that hurts most.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

import torch

from parkway.backends.cuda.device import Device
from parkway.memory.copy_engine import Event, Lane
from parkway.memory.cuda_copies import CudaLane


class World(Protocol):
    device: torch.device
    main: Any
    """The queue of kernels."""

    def lane(self) -> Lane: ...

    def kernel(self, run: Callable[[], object]) -> None:
        """Queues a slow kernel that does this at its end."""

    def mark(self) -> Event:
        """Behind the kernels that have been queued."""

    def settle(self) -> None:
        """Lets everything run that has been queued."""


class Queue(deque[Callable[[], bool]]):
    """What is to be done; each returns whether it could be."""


class HeldEvent:
    def __init__(self, world: "HeldWorld") -> None:
        self.happened = False
        self._world = world

    def wait(self) -> None:
        self._world.settle()
        assert self.happened

    def hold(self, queue: Queue) -> None:
        queue.append(lambda: self.happened)

    def happen(self) -> bool:
        self.happened = True
        return True


class HeldLane:
    def __init__(self, world: "HeldWorld") -> None:
        self.queue = Queue()
        self._world = world

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self.queue.append(lambda: target.copy_(source) is target)

    def record(self) -> HeldEvent:
        return self._world.record(self.queue)


class HeldWorld:
    """Nothing runs before `settle`. `prefer` picks which of the queues that can go on does."""

    device = torch.device("cpu")

    def __init__(self, prefer: Callable[[list[Queue]], Queue]) -> None:
        self.main = Queue()
        self._queues = [self.main]
        self._prefer = prefer

    def lane(self) -> HeldLane:
        lane = HeldLane(self)
        self._queues.append(lane.queue)
        return lane

    def kernel(self, run: Callable[[], object]) -> None:
        self.main.append(lambda: (run(), True)[1])

    def mark(self) -> HeldEvent:
        return self.record(self.main)

    def record(self, queue: Queue) -> HeldEvent:
        event = HeldEvent(self)
        queue.append(event.happen)
        return event

    def settle(self) -> None:
        ready = [queue for queue in self._queues if queue]
        while ready:
            queue = self._prefer(ready)
            if queue[0]():
                queue.popleft()
                ready = [each for each in self._queues if each]
            else:
                ready = [each for each in ready if each is not queue]
                assert ready, "queues wait for each other"


class GpuWorld:
    """Kernels sleep 10 ms before they do anything, which is longer than any copy here takes."""

    def __init__(self) -> None:
        self._device = Device("cuda")
        self.device = self._device.torch
        self.main = self._device.stream()

    def lane(self) -> CudaLane:
        return CudaLane(self._device)

    def kernel(self, run: Callable[[], object]) -> None:
        with self._device.on(self.main):
            torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
            run()

    def mark(self) -> Event:
        return self._device.record(self.main)

    def settle(self) -> None:
        torch.cuda.synchronize()


def worlds() -> dict[str, Callable[[], World]]:
    made: dict[str, Callable[[], World]] = {
        "copies first": lambda: HeldWorld(lambda queues: queues[-1]),
        "kernels first": lambda: HeldWorld(lambda queues: queues[0]),
        "any order": lambda: HeldWorld(Random(5).choice),
    }
    return made | ({"gpu": GpuWorld} if torch.cuda.is_available() else {})
