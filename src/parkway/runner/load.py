"""From a model file to something that runs steps, on the device that the settings name."""

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol

from parkway.config import EngineSettings
from parkway.errors import BadSetting
from parkway.machine import gpu
from parkway.models import architecture_of
from parkway.runner import Runner
from parkway.runner.cpu_load import load_on_cpu
from parkway.runner.fit import RingUse
from parkway.weights import open_checkpoint

logger = logging.getLogger(__name__)


class Model(Protocol):
    """A loaded model: its forward pass with packed weights, shared by every runner of the process."""

    @property
    def name(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def window(self) -> int:
        """The largest that a layer sees; 0 where none sees a window only."""

    def runner(self, settings: EngineSettings, chunk_tokens: int | None = None, rings: RingUse = "saving") -> Runner:
        """A runner with a pool and buffers of its own. `chunk_tokens`: the most rows of one chat in a step, where that
        is known; what rings have room for is at most that. Raises NoRoom, BadSetting."""


def load_model(path: Path, settings: EngineSettings) -> Model:
    """Reads and packs a model file or folder. Raises BadFile, Unsupported, NoRoom, BadSetting."""
    checkpoint = open_checkpoint(path)
    architecture_of(checkpoint)
    if chosen_device(settings) == "cpu":
        return load_on_cpu(checkpoint, settings)
    from parkway.runner.cuda_load import load_on_gpu  # torch: only where it computes

    return load_on_gpu(checkpoint, settings)


def chosen_device(settings: EngineSettings) -> Literal["cpu", "cuda"]:
    """What computes. Raises BadSetting where it was asked for and can't."""
    if settings.device == "cpu":
        return "cpu"
    missing = [name for name in ("torch", "triton", "cuda") if find_spec(name) is None]
    if settings.device == "cuda":
        if not gpu():
            raise BadSetting("--device", "cuda needs an NVIDIA GPU and its driver, and this machine shows none")
        if missing:
            raise BadSetting("--device", f"cuda needs {', '.join(missing)}: pip install 'parkway[cuda]'")
        return "cuda"
    if not gpu():
        return "cpu"
    if missing:
        logger.warning("there is a GPU, but no %s: computing on the CPU (pip install 'parkway[cuda]')", missing[0])
        return "cpu"
    return "cuda"
