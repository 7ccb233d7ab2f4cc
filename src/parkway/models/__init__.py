"""Model families as plain forward passes over the operations table. Know no array library and no memory."""

from parkway.errors import Unsupported
from parkway.models.dense import Dense
from parkway.models.llama import Llama
from parkway.models.qwen2 import Qwen2
from parkway.models.qwen3 import Qwen3
from parkway.models.tensors import Pack
from parkway.weights.checkpoint import Checkpoint

__all__ = ["FAMILIES", "Dense", "architecture_of", "build_model"]

FAMILIES: dict[str, type[Dense]] = {"llama": Llama, "qwen2": Qwen2, "qwen3": Qwen3}


def build_model(checkpoint: Checkpoint, pack: Pack) -> Dense:
    """The model of a checkpoint, its weights taken in by `pack`. Raises Unsupported, BadFile."""
    return FAMILIES[architecture_of(checkpoint)](checkpoint, pack)


def architecture_of(checkpoint: Checkpoint) -> str:
    """The name of the checkpoint's family. Raises Unsupported where there is none of that name."""
    architecture = str(checkpoint.value("general.architecture", ""))
    if architecture not in FAMILIES:
        raise Unsupported(
            f"{checkpoint.path}: architecture {architecture!r} is not supported; supported: {', '.join(FAMILIES)}"
        )
    return architecture
