"""Model families as plain forward passes over the operations table. Know no array library and no memory."""

from typing import Any

from parkway.errors import Unsupported
from parkway.models.llama import Llama
from parkway.weights.checkpoint import Checkpoint

FAMILIES = {"llama": Llama}


def build_model(checkpoint: Checkpoint, pack: Any) -> Llama:
    """The model of a checkpoint, its weights packed by `pack` (see Llama). Raises Unsupported, BadFile."""
    return FAMILIES[architecture_of(checkpoint)](checkpoint, pack)


def architecture_of(checkpoint: Checkpoint) -> str:
    """The name of the checkpoint's family. Raises Unsupported where there is none of that name."""
    architecture = str(checkpoint.value("general.architecture", ""))
    if architecture not in FAMILIES:
        raise Unsupported(
            f"{checkpoint.path}: architecture {architecture!r} is not supported; supported: {', '.join(FAMILIES)}"
        )
    return architecture
