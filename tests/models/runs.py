"""A small model's forward pass on the CPU backend and on the reference, over chats that are cut into steps at will."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parkway.backends.reference import Floats, ReferenceOps, ReferencePack, ReferenceStep
from parkway.models import build_model
from parkway.weights import open_checkpoint
from tests.backends.rig import TABLES, CpuPack, Rig

CHATS = ((0, 150), (1, 3), (2, 70))
"""Chat and length; 223 rows in all, the longest over two attention splits and three pages."""
Place = tuple[int, int]
"""Chat and position."""
Steps = Iterable[Sequence[Place]]
Logits = dict[Place, bytes]


def token_at(place: Place) -> int:
    """The token of a place of a chat: the same in every run."""
    chat, position = place
    return (chat * 71 + position * 37 + position // 7) % 256


def step_of(places: Sequence[Place], tables: Sequence[Sequence[int]] = TABLES) -> ReferenceStep:
    return ReferenceStep(
        [token_at(place) for place in places],
        [position for _, position in places],
        [tables[chat] for chat, _ in places],
        range(len(places)),
    )


def cpu_model(path: Path, **machine: Any) -> Rig:
    """The model's program, which makes logits [rows, vocabulary]."""
    model = build_model(open_checkpoint(path), CpuPack())
    config = model.config
    shape = {"heads": config.heads, "kv": config.kv, "states": config.states}
    return Rig(lambda recorder: [model.forward(recorder)], **{**shape, **machine})


def reference_model(path: Path, activations: str) -> Callable[[ReferenceStep], Floats]:
    model = build_model(open_checkpoint(path), ReferencePack())
    ops = ReferenceOps(model.config.kv, activations, state_shape=model.config.states)

    def run(step: ReferenceStep) -> Floats:
        ops.step = step
        return np.asarray(model.forward(ops))

    return run


def whole() -> Steps:
    return [[(chat, position) for chat, length in CHATS for position in range(length)]]


def chunks(tokens: int) -> Steps:
    """Each step has the next `tokens` tokens of every chat that still has some."""
    for start in range(0, max(length for _, length in CHATS), tokens):
        yield [(chat, at) for chat, length in CHATS for at in range(start, min(start + tokens, length))]


def logits_of(rig: Rig, steps: Steps, tables: Sequence[Sequence[int]] = TABLES) -> Logits:
    """The bits of every place's logits, after running the steps in order."""
    found: Logits = {}
    for places in steps:
        made = rig.run(step_of(places, tables))[0]
        found |= {place: row.tobytes() for place, row in zip(places, made, strict=True)}
    return found
