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
from parkway.backends.cpu.recorder import Machine, Recorder, RingMemory, layer_bytes
from parkway.backends.cpu.recorder_states import slot_bytes
from parkway.backends.cpu.stack import Stack, pack_stack
from parkway.backends.quant import decode
from parkway.config import Activations, EngineSettings
from parkway.errors import BadSetting, NoRoom
from parkway.fingerprint import VERSION, fingerprint
from parkway.machine import cores
from parkway.memory.page_store import PageStore
from parkway.memory.ring_store import RingStore
from parkway.memory.state_store import StateStore
from parkway.models import Dense, build_model
from parkway.plan.step import PAGE_TOKENS
from parkway.runner.cpu_runner import CpuRunner
from parkway.runner.fit import RingUse, Room, checkpoints_for, room_with_rings
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

    @property
    def window(self) -> int:
        return max(self.family.config.windows)

    def runner(self, settings: EngineSettings, chunk_tokens: int | None = None, rings: RingUse = "saving") -> CpuRunner:
        """A runner with a pool, threads and buffers of its own. Raises NoRoom, BadSetting."""
        config, rows = self.family.config, max(settings.batch_size or BATCH_TOKENS, settings.parallel)
        room = self._room(settings, rows, chunk_tokens, rings)
        ringed = room.rings.layers if room.rings else ()
        layer = layer_bytes(config.kv, self.activations)
        store = PageStore(room.tokens, layer * (config.kv.layers - len(ringed)))
        states, rings_kept = self._kept(settings.parallel, store, room, layer * len(ringed))
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
            rings=_ring_memory(rings_kept, settings.parallel, store),
        )
        recorder = Recorder(machine)
        logits = self.family.forward(recorder)
        recorder.sample(logits, config.vocabulary)
        program = Program(recorder, logits, Pool(settings.threads or len(cores())))
        assert recorder.hidden, "a forward pass without logits"
        return CpuRunner(
            program,
            store,
            program.rows(recorder.hidden, machine.max_logit_rows),
            slots=settings.parallel,
            max_rows=rows,
            logit_rows=machine.max_logit_rows,
            n_ctx=min(room.n_ctx, store.pages * PAGE_TOKENS),
            states=states,
            rings=rings_kept,
        )

    def _room(self, settings: EngineSettings, rows: int, chunk_tokens: int | None, use: RingUse) -> Room:
        config = self.family.config
        layer, state_bytes = layer_bytes(config.kv, self.activations), slot_bytes(config.states) if config.states else 0
        left = psutil.virtual_memory().available - settings.parallel * state_bytes
        return room_with_rings(
            settings,
            config.attention,
            rows=rows,
            chunk_tokens=chunk_tokens,
            use=use,
            free_bytes=int(left * POOL_SHARE),
            layer_bytes=layer,
            ctx_train=config.ctx_train,
        )

    def _kept(
        self, slots: int, store: PageStore, room: Room, ring_page_bytes: int
    ) -> tuple[StateStore | None, RingStore | None]:
        """What slots keep of their chats beside pages of the pool, with checkpoints: as many of either kind."""
        states, rings = self.family.config.states, room.rings
        state_bytes = slot_bytes(states) if states else 0
        ring_bytes, kept_bytes = (ring_page_bytes * pages for pages in ((rings.pages, rings.kept) if rings else (0, 0)))
        if not state_bytes + kept_bytes:
            return None, None
        free_bytes = psutil.virtual_memory().available - store.bytes - slots * (state_bytes + ring_bytes)
        count = checkpoints_for(store.pages, store.bytes, state_bytes + kept_bytes, free_bytes, room.checkpoints)
        return (
            StateStore(slots, state_bytes, count) if states else None,
            RingStore(slots, rings, ring_page_bytes, count) if rings else None,
        )


def _ring_memory(store: RingStore | None, slots: int, pool: PageStore) -> RingMemory | None:
    return RingMemory(store.rings, store.memory, store.rings.tables(slots, pool.pages)) if store else None


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
    order = ("portable", "avx2", "avx512", "amx")
    best = best_isa()
    if settings.isa == "auto":
        return best
    if order.index(settings.isa) > order.index(best):
        raise BadSetting("--isa", f"this machine has no {settings.isa}, only {best}")
    return settings.isa
