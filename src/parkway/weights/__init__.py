"""Files on disk → named tensors, still in the file's own types. Knows nothing about models or devices."""

from pathlib import Path

from parkway.weights.checkpoint import Checkpoint
from parkway.weights.gguf import GgufFile
from parkway.weights.hugging_face import HuggingFaceFolder
from parkway.weights.random_checkpoint import RandomCheckpoint, is_shape

__all__ = ["open_checkpoint"]


def open_checkpoint(path: Path) -> Checkpoint:
    """A GGUF file, a folder as Hugging Face lays it out, or random weights: `shape:NAME` or `shape:NAME:TYPE`.

    Raises BadFile, Unsupported.
    """
    if is_shape(path):
        return RandomCheckpoint.named(path)
    return HuggingFaceFolder(path) if path.is_dir() else GgufFile(path)
