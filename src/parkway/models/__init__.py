"""Model families as plain forward passes over the operations table. Know no array library and no memory."""

from typing import Any

from parkway.errors import Unsupported
from parkway.models.llama import Llama
from parkway.weights.checkpoint import Checkpoint

FAMILIES = {"llama": Llama}


def build_model(checkpoint: Checkpoint, pack: Any) -> Llama:
    """The model of a checkpoint, its weights packed by `pack` (see Llama). Raises Unsupported, BadFile."""
    architecture = checkpoint.value("general.architecture", "")
    family = FAMILIES.get(architecture)
    if family is None:
        raise Unsupported(
            f"{checkpoint.path}: architecture {architecture!r} is not supported; supported: {', '.join(FAMILIES)}"
        )
    return family(checkpoint, pack)
