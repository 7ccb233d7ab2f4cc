"""A model on the CPU: weights packed once, and a runner for each engine that shares them."""

import math
from dataclasses import dataclass

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
from parkway.models import Dense, build_model
from parkway.runner.cpu_runner import CpuRunner
from parkway.weights.checkpoint import Checkpoint, RawTensor

BATCH_TOKENS = 256
"""Rows of a step unless the settings say otherwise."""
MAX_LOGIT_ROWS = 64
"""Rows of a step that may need logits: bounds their memory, and so how many prompt tokens a step can score."""


class CpuPack:
    """Takes a file's tensors into the kernels' layout."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        matrices = (tensor for tensor in checkpoint.tensors.values() if len(tensor.shape) > 1)
        sizes = (
            packed_bytes(each.name, each.type.name, math.prod(each.shape[:-1]), each.shape[-1]) for each in matrices
        )
        self.memory = WeightMemory(sum(aligned(size) for size in sizes))

    def matrix(self, tensor: RawTensor, bias: RawTensor | None = None) -> Matrix:
        added = None if bias is None else self.vector(bias)
        return pack_matrix(tensor.name, tensor.type.name, tensor.raw, tensor.shape[-1], self.memory, added)

    def vector(self, tensor: RawTensor) -> npt.NDArray[np.float32]:
        return decode(tensor.name, tensor.type.name, tensor.raw).reshape(-1).copy()

    def together(self, *matrices: Matrix) -> tuple[Matrix, ...]:
        return matrices


@dataclass(frozen=True, slots=True)
class CpuModel:
    """A loaded model: its forward pass with packed weights, shared by every engine of the process."""

    name: str
    family: Dense
    activations: Activations
    isa: str
    fingerprint: str
    weight_bytes: int

    @property
    def vocab_size(self) -> int:
        return self.family.config.vocabulary

    def runner(self, settings: EngineSettings) -> CpuRunner:
        """A runner with a pool, threads and buffers of its own. Raises NoRoom, BadSetting."""
        config = self.family.config
        store = PageStore(settings.ctx_size, layer_bytes(config.kv, self.activations) * config.layers)
        rows = max(settings.batch_size or BATCH_TOKENS, settings.parallel)
        machine = Machine(
            isa=self.isa,
            activations=self.activations,
            max_rows=rows,
            max_logit_rows=max(MAX_LOGIT_ROWS, settings.parallel),
            max_positions=settings.ctx_size,
            heads=config.heads,
            kv=config.kv,
            rope=config.rope,
            pool=store.memory,
        )
        recorder = Recorder(machine)
        logits = self.family.forward(recorder)
        recorder.sample(logits, config.vocabulary)
        program = Program(recorder, logits, Pool(settings.threads or len(cores())))
        assert recorder.hidden, "a forward pass without logits"
        hidden = program.rows(recorder.hidden, machine.max_logit_rows)
        return CpuRunner(
            program, store, hidden, slots=settings.parallel, max_rows=rows, logit_rows=machine.max_logit_rows
        )


def load_on_cpu(checkpoint: Checkpoint, settings: EngineSettings) -> CpuModel:
    """Packs a checkpoint's weights. Raises BadFile, Unsupported, NoRoom, BadSetting."""
    if settings.numerics != "exact":
        raise BadSetting("--numerics", "fast is for a GPU; the CPU has exact kernels only")
    isa = _isa(settings)
    pack = CpuPack(checkpoint)
    family = build_model(checkpoint, pack)
    return CpuModel(
        name=checkpoint.name,
        family=family,
        activations=settings.activations,
        isa=isa,
        fingerprint=fingerprint(
            VERSION, build.source_hash(), isa, settings.activations, checkpoint.identity, str(family.config)
        ),
        weight_bytes=pack.memory.used_bytes,
    )


def _isa(settings: EngineSettings) -> str:
    order = ("portable", "avx2", "avx512")
    best = best_isa()
    if settings.isa == "auto":
        return best
    if order.index(settings.isa) > order.index(best):
        raise BadSetting("--isa", f"this machine has no {settings.isa}, only {best}")
    return settings.isa
