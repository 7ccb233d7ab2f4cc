"""From a model file to something that runs steps: weights packed once, a runner for each engine that shares them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from parkway.backends.cpu import build
from parkway.backends.cpu.library import Pool, aligned, best_isa
from parkway.backends.cpu.pack import Matrix, WeightMemory, pack_matrix, packed_bytes
from parkway.backends.cpu.program import Program
from parkway.backends.cpu.recorder import Machine, Recorder, layer_bytes
from parkway.backends.quant import decode
from parkway.config import Activations, EngineSettings
from parkway.errors import BadSetting
from parkway.fingerprint import VERSION, fingerprint
from parkway.machine import cores
from parkway.memory.page_store import PageStore
from parkway.models import architecture_of, build_model
from parkway.models.llama import Llama
from parkway.runner.cpu_runner import CpuRunner
from parkway.weights.checkpoint import Checkpoint, RawTensor
from parkway.weights.gguf import GgufFile

MAX_LOGIT_ROWS = 64
"""Rows of a step that may need logits: bounds their memory, and so how many prompt tokens a step can score."""


class CpuPack:
    """Takes a file's tensors into the kernels' layout."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        matrices = (tensor for tensor in checkpoint.tensors.values() if len(tensor.shape) > 1)
        sizes = (packed_bytes(each.name, each.type.name, len(each.raw), each.shape[-1]) for each in matrices)
        self.memory = WeightMemory(sum(aligned(size) for size in sizes))

    def matrix(self, tensor: RawTensor) -> Matrix:
        return pack_matrix(tensor.name, tensor.type.name, tensor.raw, tensor.shape[-1], self.memory)

    def vector(self, tensor: RawTensor) -> npt.NDArray[np.float32]:
        return decode(tensor.name, tensor.type.name, tensor.raw).reshape(-1).copy()


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model: its forward pass with packed weights, shared by every engine of the process."""

    name: str
    family: Llama
    activations: Activations
    isa: str
    fingerprint: str
    weight_bytes: int

    @property
    def vocab_size(self) -> int:
        return self.family.config.vocabulary


def load_model(path: Path, settings: EngineSettings) -> Model:
    """Reads and packs a GGUF file. Raises BadFile, Unsupported, NoRoom."""
    checkpoint = GgufFile(path)
    architecture_of(checkpoint)
    pack = CpuPack(checkpoint)
    family = build_model(checkpoint, pack)
    isa = _isa(settings)
    return Model(
        name=path.stem,
        family=family,
        activations=settings.activations,
        isa=isa,
        fingerprint=fingerprint(VERSION, build.source_hash(), isa, settings.activations, _identity(checkpoint)),
        weight_bytes=pack.memory.used_bytes,
    )


def make_runner(model: Model, settings: EngineSettings) -> CpuRunner:
    """A runner with a pool, threads and buffers of its own. Raises NoRoom, BadSetting."""
    config = model.family.config
    store = PageStore(settings.ctx_size, layer_bytes(config.kv, model.activations) * config.layers)
    logit_rows = max(MAX_LOGIT_ROWS, settings.parallel)
    machine = Machine(
        isa=model.isa,
        activations=model.activations,
        max_rows=settings.batch_size,
        max_logit_rows=logit_rows,
        max_positions=settings.ctx_size,
        heads=config.heads,
        kv=config.kv,
        rope=config.rope,
        pool=store.memory,
    )
    recorder = Recorder(machine)
    logits = model.family.forward(recorder)
    recorder.sample(logits, config.vocabulary)
    program = Program(recorder, logits, Pool(settings.threads or len(cores())))
    return CpuRunner(program, store, slots=settings.parallel, max_rows=settings.batch_size, logit_rows=logit_rows)


def _isa(settings: EngineSettings) -> str:
    order = ("portable", "avx2", "avx512")
    best = best_isa()
    if settings.isa == "auto":
        return best
    if order.index(settings.isa) > order.index(best):
        raise BadSetting("--isa", f"this machine has no {settings.isa}, only {best}")
    return settings.isa


def _identity(checkpoint: Checkpoint) -> str:
    """Names the weights without reading all: each tensor's name, type and shape, and its first and last row."""
    return fingerprint(
        *(
            f"{tensor.name} {tensor.type.name} {tensor.shape} {tensor.raw[[0, -1]].tobytes().hex()}"
            for tensor in checkpoint.tensors.values()
        )
    )
