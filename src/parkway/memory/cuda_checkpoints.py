"""States of chats at page boundaries on the GPU, for chats that begin there. Knows neither whose they are nor when."""

from dataclasses import dataclass

import torch

from parkway.backends.cuda.delta import States


@dataclass(frozen=True, slots=True)
class CudaCheckpoints:
    """At a page boundary no row waits for the next anchor: matrices and inputs of convolutions, as `States` has them.

    Copies are queued on the stream of the moment, behind what has been launched there.
    """

    states: States
    matrices: torch.Tensor
    inputs: torch.Tensor

    @classmethod
    def allocate(cls, count: int, states: States) -> "CudaCheckpoints":
        """Raises torch.OutOfMemoryError."""
        matrices, inputs = (each.new_empty((count, *each.shape[1:])) for each in (states.matrices, states.inputs))
        return cls(states, matrices, inputs)

    def __len__(self) -> int:
        return len(self.matrices)

    @property
    def bytes(self) -> int:
        return self.matrices.nbytes + self.inputs.nbytes

    def begin(self, slot: int, checkpoint: int) -> None:
        """The slot's state becomes what the checkpoint holds."""
        _copy(self.matrices[checkpoint], self.states.matrices[slot])
        _copy(self.inputs[checkpoint], self.states.inputs[slot])

    def keep(self, slot: int, checkpoint: int) -> None:
        """The checkpoint becomes what the slot's state is then."""
        _copy(self.states.matrices[slot], self.matrices[checkpoint])
        _copy(self.states.inputs[slot], self.inputs[checkpoint])


def _copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """By a kernel: a copy engine may be busy with pages of parked chats. As integers, whose bits stay as they are."""
    torch.add(source.view(torch.int32), 0, out=target.view(torch.int32))


def checkpoint_bytes(states: States) -> int:
    """Of one checkpoint."""
    return (states.matrices.nbytes + states.inputs.nbytes) // len(states.matrices)
