"""What chats have left in their slots at page boundaries on the GPU, states and ends of rings, for chats that begin
there. Knows neither whose they are nor when."""

from dataclasses import dataclass

import torch

from parkway.backends.cuda.delta import States
from parkway.backends.cuda.operations import RingPages


@dataclass(frozen=True, slots=True)
class CudaCheckpoints:
    """At a page boundary no row waits for the next anchor: of states, matrices and inputs of convolutions, as `States`
    has them. Of rings, the pages that they keep, bf16 [count, pages, layers, 2, kv_heads, 64, head_dim].

    Copies are queued on the stream of the moment, behind what has been launched there.
    """

    count: int
    states: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    """What all slots have, and what all checkpoints hold of it."""
    rings: RingPages | None
    ends: torch.Tensor | None

    @classmethod
    def allocate(cls, count: int, states: States | None, rings: RingPages | None) -> "CudaCheckpoints":
        """Raises torch.OutOfMemoryError."""
        pairs = [(each, each.new_empty((count, *each.shape[1:]))) for each in _lasting(states)]
        ends = rings.pages.new_empty((count, rings.shape.kept, *rings.pages.shape[1:])) if rings else None
        return cls(count, tuple(pairs), rings, ends)

    def __len__(self) -> int:
        return self.count

    @property
    def bytes(self) -> int:
        return sum(kept.nbytes for _, kept in self.states) + (0 if self.ends is None else self.ends.nbytes)

    def begin(self, slot: int, checkpoint: int, tokens: int) -> None:
        """The slot has what the checkpoint, taken behind so many tokens, holds."""
        for here, kept in self._parts(slot, checkpoint, tokens):
            _copy(kept, here)

    def keep(self, slot: int, checkpoint: int, tokens: int) -> None:
        """The checkpoint holds what the slot has then, behind so many tokens of its chat."""
        for here, kept in self._parts(slot, checkpoint, tokens):
            _copy(here, kept)

    def _parts(self, slot: int, checkpoint: int, tokens: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What is copied: of the slot, of the checkpoint."""
        parts = [(here[slot], kept[checkpoint]) for here, kept in self.states]
        if self.rings and self.ends is not None:
            first, ends = slot * self.rings.shape.pages, self.ends[checkpoint]
            for ring, kept, pages in self.rings.shape.runs(tokens):
                parts.append((self.rings.pages[first + ring :][:pages], ends[kept:][:pages]))
        return parts


def _copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """By a kernel: a copy engine may be busy with pages of parked chats. As integers, whose bits stay as they are."""
    torch.add(source.view(torch.int32), 0, out=target.view(torch.int32))


def checkpoint_bytes(states: States | None, rings: RingPages | None) -> int:
    """Of one checkpoint."""
    of_states = sum(each[0].nbytes for each in _lasting(states))
    return of_states + (rings.shape.kept * rings.pages[0].nbytes if rings else 0)


def _lasting(states: States | None) -> tuple[torch.Tensor, ...]:
    """What a state is at a page boundary."""
    return (states.matrices, states.inputs) if states else ()
