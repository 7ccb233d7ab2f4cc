"""A model on the CPU: weights packed once, and a runner for each engine that shares them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import psutil

from parkway.backends.cpu import build
from parkway.backends.cpu.library import Pool, aligned, best_isa
from parkway.backends.cpu.pack import Matrix, WeightMemory, pack_matrix, packed_bytes
from parkway.backends.cpu.program import Program
from parkway.backends.cpu.recorder import Machine, Recorder, layer_bytes
from parkway.backends.cpu.recorder_states import slot_bytes
from parkway.backends.cpu.stack import Stack, pack_stack
from parkway.backends.quant import decode
from parkway.config import Activations, EngineSettings
from parkway.errors import BadSetting, NoRoom
from parkway.fingerprint import VERSION, fingerprint
from parkway.machine import cores
from parkway.memory.page_store import PageStore
from parkway.memory.state_store import StateStore
from parkway.models import Dense, build_model
from parkway.plan.step import PAGE_TOKENS
from parkway.runner.cpu_runner import CpuRunner
from parkway.runner.fit import checkpoints_for, room_for
from parkway.weights.checkpoint import Checkpoint, RawTensor

BATCH_TOKENS = 256
"""Rows of a step unless the settings say otherwise."""
POOL_SHARE = 0.5
"""Of the memory that is left, for a pool that takes what fits: parked chats, buffers and others need some too."""
SHORTEST_ROW, GROUP_ROWS, MOST_PARTS = 32, 16, 6
"""Of matrices: columns of what is multiplied (shorter rows are taken in as vectors), rows that are packed together,
matrices that lie in one tensor."""
MAX_LOGIT_ROWS = 64
"""Rows of a step that may need logits: bounds their memory, and so how many prompt tokens a step can score."""


class CpuPack:
    """Takes a file's tensors into the kernels' layout."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        tensors = checkpoint.tensors.values()
        matrices = [tensor for tensor in tensors if len(tensor.shape) > 1 and tensor.shape[-1] >= SHORTEST_ROW]
        _check_fit(sum(_packed(tensor) for tensor in matrices))
        self.memory = WeightMemory(sum(_packed(tensor, _spare_rows(tensor)) for tensor in matrices))

    def matrix(self, tensor: RawTensor, bias: RawTensor | None = None) -> Matrix:
        added = None if bias is None else self.vector(bias)
        return pack_matrix(tensor.name, tensor.type.name, tensor.raw, tensor.shape[-1], self.memory, added)

    def vector(self, tensor: RawTensor) -> npt.NDArray[np.float32]:
        return decode(tensor.name, tensor.type.name, tensor.raw).reshape(-1).copy()

    def stack(self, experts: Sequence[RawTensor], biases: Sequence[RawTensor] | None = None) -> Stack:
        first, added = experts[0], None if biases is None else [self.vector(bias) for bias in biases]
        raws = [expert.raw for expert in experts]
        return pack_stack(first.name, first.type.name, raws, first.shape[-1], self.memory, added)

    def together(self, *matrices: Matrix) -> tuple[Matrix, ...]:
        return matrices


def _check_fit(size_bytes: int) -> None:
    """Address space is given for any size, and the system ends whoever uses more than it has. Raises NoRoom."""
    free_bytes = psutil.virtual_memory().available
    if size_bytes > free_bytes:
        raise NoRoom(
            f"the weights need {size_bytes / 2**20:,.0f} MiB, {free_bytes / 2**20:,.0f} MiB are free: take a smaller "
            "model or a smaller quantisation of it"
        )


def _packed(tensor: RawTensor, more_rows: int = 0) -> int:
    """Bytes of a matrix, or of all of a stack, once it is packed."""
    *counts, columns = tensor.shape
    return aligned(packed_bytes(tensor.name, tensor.type.name, math.prod(counts) + more_rows, columns))


def _spare_rows(tensor: RawTensor) -> int:
    """Rows of address space for a matrix that is packed in parts, each of which fills up its last group; what is not
    used is never given by the system."""
    return (2 * math.prod(tensor.shape[:-2]) + MOST_PARTS) * GROUP_ROWS  # an expert's gate and up may be one


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
        page_bytes = layer_bytes(config.kv, self.activations) * config.kv.layers
        state_bytes = slot_bytes(config.states) if config.states else 0
        free_bytes = int((psutil.virtual_memory().available - settings.parallel * state_bytes) * POOL_SHARE)
        room = room_for(settings, free_bytes=free_bytes, page_bytes=page_bytes, ctx_train=config.ctx_train)
        store = PageStore(room.tokens, page_bytes)
        states = self._states(settings.parallel, store) if config.states else None
        rows = max(settings.batch_size or BATCH_TOKENS, settings.parallel)
        machine = Machine(
            isa=self.isa,
            activations=self.activations,
            max_rows=rows,
            max_logit_rows=max(MAX_LOGIT_ROWS, settings.parallel),
            max_positions=room.n_ctx,
            heads=config.heads,
            kv=config.kv,
            pool=store.memory,
            states=config.states,
            state_memory=states.memory if states else None,
        )
        recorder = Recorder(machine)
        logits = self.family.forward(recorder)
        recorder.sample(logits, config.vocabulary)
        program = Program(recorder, logits, Pool(settings.threads or len(cores())))
        assert recorder.hidden, "a forward pass without logits"
        hidden = program.rows(recorder.hidden, machine.max_logit_rows)
        return CpuRunner(
            program,
            store,
            hidden,
            slots=settings.parallel,
            max_rows=rows,
            logit_rows=machine.max_logit_rows,
            n_ctx=min(room.n_ctx, store.pages * PAGE_TOKENS),
            states=states,
        )

    def _states(self, slots: int, store: PageStore) -> StateStore:
        assert self.family.config.states, "a model without states"
        size = slot_bytes(self.family.config.states)
        free_bytes = psutil.virtual_memory().available - store.bytes - slots * size
        return StateStore(slots, size, checkpoints_for(store.pages, store.bytes, size, free_bytes))


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
