"""A model on the GPU: weights packed once, checked for exactness, and a runner for each engine that shares them."""

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path

import torch
import triton

from parkway.backends import bit_check, cuda
from parkway.backends.bit_check import Verdict
from parkway.backends.cuda import delta
from parkway.backends.cuda.attention import Choices, few_candidates, many_candidates
from parkway.backends.cuda.chooser import Chooser
from parkway.backends.cuda.device import DENSE, HYBRID, MIXTURE, QUANTISED, Device, Launches
from parkway.backends.cuda.experts import ExactExperts
from parkway.backends.cuda.experts_quantised import Rooms
from parkway.backends.cuda.experts_stack import AnyStack, QuantStack, stacked
from parkway.backends.cuda.fast import FastLinears, FastOps
from parkway.backends.cuda.linears import ExactLinears
from parkway.backends.cuda.operations import CudaOps, Pool, RingPages
from parkway.backends.cuda.quantised import QuantMatrix
from parkway.backends.cuda.quantised_config import MAX_ROWS
from parkway.backends.cuda.tuner import Tuner
from parkway.backends.cuda.weights import CudaMatrix, Together, pack, together
from parkway.backends.quant import decode
from parkway.config import EngineSettings
from parkway.errors import NoRoom
from parkway.fingerprint import VERSION, fingerprint
from parkway.machine import cache_folder, gpu, gpu_driver
from parkway.memory.cuda_checkpoints import CudaCheckpoints, checkpoint_bytes
from parkway.memory.cuda_page_store import CudaPageStore, page_bytes
from parkway.memory.cuda_ring_store import allocate as ring_pages
from parkway.memory.cuda_state_store import allocate
from parkway.models import Dense, build_model
from parkway.plan.pages import pages_for
from parkway.plan.step import PAGE_TOKENS
from parkway.runner.cuda_compile import compile_side_by_side, subjects
from parkway.runner.cuda_needs import needs_of, quantised_types
from parkway.runner.cuda_runner import CudaRunner
from parkway.runner.cuda_step import Sizes, Steps
from parkway.runner.fit import MOST_CHECKPOINT_BYTES, RingUse, Room, checkpoints_for, room_with_rings
from parkway.weights.checkpoint import Checkpoint, RawTensor

logger = logging.getLogger(__name__)

BATCH_TOKENS = 4096
"""Rows of a step unless the settings say otherwise: enough for the matrix units, few enough for a tenth of a second."""
MAX_LOGIT_ROWS = 64
RESERVED_BYTES, POOL_SHARE = 2 << 30, 0.9
"""For a pool that takes what fits: bytes that buffers may need, and its share of what is left."""


OF_LOGITS = re.compile(r"(output|token_embd|blk\.\d+\.nextn\.(shared_head_head|embed_tokens))\.weight")
"""Matrices that no more rows than those of logits are multiplied with."""


class CudaPack:
    """Takes a file's tensors to the device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.bytes = 0
        self.decoded = 0
        """Values of the largest stack that many rows multiply decoded."""
        self.largest: Counter[bool] = Counter()
        """… and of the largest matrix, of those of layers (False) and of those that only logit rows multiply (True)."""

    def matrix(self, tensor: RawTensor, bias: RawTensor | None = None) -> CudaMatrix:
        added = None if bias is None else self.vector(bias)
        made = pack(tensor.name, tensor.type.name, tensor.raw, tensor.shape[-1], added, self._device)
        self.bytes += made.bytes
        self._measure(made, OF_LOGITS.fullmatch(tensor.name) is not None)
        return made

    def vector(self, tensor: RawTensor) -> torch.Tensor:
        values = decode(tensor.name, tensor.type.name, tensor.raw).reshape(-1).copy()
        return torch.from_numpy(values).to(self._device)

    def stack(self, experts: Sequence[RawTensor], biases: Sequence[RawTensor] | None = None) -> AnyStack:
        made = stacked([self.matrix(*each) for each in zip(experts, biases or repeat(None), strict=False)])
        if isinstance(made, QuantStack):
            self.decoded = max(self.decoded, made.count * made.rows * made.columns)
        return made

    def together(self, *matrices: CudaMatrix) -> Together:
        made = together(matrices)
        for part, _ in made.parts:
            self._measure(part, False)
        return made

    def _measure(self, matrix: CudaMatrix, of_logits: bool) -> None:
        if isinstance(matrix, QuantMatrix):
            self.largest[of_logits] = max(self.largest[of_logits], matrix.rows * matrix.columns)


@dataclass(frozen=True, slots=True)
class CudaModel:
    """A loaded model: its forward pass with packed weights, shared by every runner of the process.

    `kernels` names the kernels and what compiles them, so that what was measured of one is not taken for another.
    """

    name: str
    family: Dense
    device: Device
    verdict: Verdict
    kernels: str
    quantised: bool
    fingerprint: str
    weight_bytes: int
    decoded: int = 0
    largest: Mapping[bool, int] = field(default_factory=dict)
    """As `CudaPack` has them."""

    @property
    def vocab_size(self) -> int:
        return self.family.config.vocabulary

    @property
    def window(self) -> int:
        return max(self.family.config.windows)

    def runner(
        self, settings: EngineSettings, chunk_tokens: int | None = None, rings: RingUse = "saving"
    ) -> CudaRunner:
        """A runner with a pool and buffers of its own. Raises NoRoom."""
        with _room(self.device, f"--ctx-size {settings.ctx_size}, --parallel {settings.parallel}: the buffers"):
            return self._runner(settings, chunk_tokens, rings)

    def _runner(self, settings: EngineSettings, chunk_tokens: int | None, use: RingUse) -> CudaRunner:
        config, device = self.family.config, self.device
        states = allocate(settings.parallel, config.states, device.torch) if config.states else None
        rooms = Rooms()
        rooms.reserve(self.decoded, device.torch)
        rows, logit_rows = _rows(settings)
        room = self._space(settings, rows, chunk_tokens, use)
        pages, ringed = pages_for(room.n_ctx), len(room.rings.layers) if room.rings else 0
        store = CudaPageStore(room.tokens, replace(config.kv, layers=config.kv.layers - ringed), device.torch)
        rings = ring_pages(settings.parallel, room.rings, config.kv, pages, device.torch) if room.rings else None
        checkpoints, before = _checkpoints(states, rings, store, room, device), device.used_bytes
        turns = {id(rope): torch.from_numpy(rope.turns(room.n_ctx)).to(device.torch) for rope in config.ropes}
        cut = self.verdict.allowed("delta_net", delta.candidates(config.states))[0] if config.states else None
        pool = Pool(config.kv, config.heads, store.memory, turns, states, cut, rings)
        sizes = Sizes(slots=settings.parallel, rows=rows, logit_rows=logit_rows, pages=pages)
        steps = Steps(
            self.family,
            self._operations(pool, settings, rooms),
            pool,
            sizes,
            device,
            graphs=settings.cuda_graphs == "on",
        )
        exact = settings.numerics == "exact"
        n_ctx = min(room.n_ctx, store.pages * PAGE_TOKENS)
        verdict = str(self.verdict)
        runner = CudaRunner(steps, store, checkpoints, device, exact=exact, bit_check=verdict, n_ctx=n_ctx)
        runner.warm()
        runner.buffer_bytes = device.used_bytes - before + rooms.bytes
        return runner

    def _space(self, settings: EngineSettings, rows: int, chunk_tokens: int | None, use: RingUse) -> Room:
        config = self.family.config
        reserved = RESERVED_BYTES + (MOST_CHECKPOINT_BYTES if config.states else 0)
        return room_with_rings(
            settings,
            config.attention,
            rows=rows,
            chunk_tokens=chunk_tokens,
            use=use,
            free_bytes=int((self.device.free_bytes - reserved) * POOL_SHARE),
            layer_bytes=page_bytes(replace(config.kv, layers=1)),
            ctx_train=config.ctx_train,
        )

    def _most_decoded(self, settings: EngineSettings) -> int:
        """Values of the largest quantised matrix that a step of these settings may multiply with many rows."""
        rows, logit_rows = _rows(settings)
        most = self.largest.get(False, 0) if rows > MAX_ROWS else 0
        return max(most, self.largest.get(True, 0)) if logit_rows > MAX_ROWS else most

    def _operations(self, pool: Pool, settings: EngineSettings, rooms: Rooms) -> CudaOps:
        group, head_dim = pool.heads // pool.kv.kv_heads, pool.kv.head_dim
        few = self.verdict.allowed("attention", few_candidates(group, head_dim))
        many = self.verdict.allowed("attention", many_candidates(group, head_dim))
        chooser = Chooser(Tuner(cache_folder() / "tuned" / f"{self.kernels}.json", self.verdict))
        exact = settings.numerics == "exact"
        launches = self._launches()
        of = ExactLinears if exact else FastLinears
        linears = of(chooser, self.device, self._most_decoded(settings), launches)
        experts = ExactExperts(chooser, linears, self.device, rooms)
        return (CudaOps if exact else FastOps)(pool, linears, experts, Choices(few, many), self.device, launches)

    def _launches(self) -> Launches:
        config = self.family.config
        if config.states:
            return HYBRID
        return QUANTISED if self.quantised else MIXTURE if config.experts else DENSE


def _rows(settings: EngineSettings) -> tuple[int, int]:
    """Most rows of a step, and most of those that may need logits."""
    return max(settings.batch_size or BATCH_TOKENS, settings.parallel), max(MAX_LOGIT_ROWS, settings.parallel)


def _checkpoints(
    states: delta.States | None, rings: RingPages | None, store: CudaPageStore, room: Room, device: Device
) -> CudaCheckpoints | None:
    if not (states or rings):
        return None
    unit_bytes, free_bytes = checkpoint_bytes(states, rings), device.free_bytes - RESERVED_BYTES
    count = checkpoints_for(store.pages, store.bytes, unit_bytes, free_bytes, room.checkpoints)
    return CudaCheckpoints.allocate(count, states, rings)


@contextmanager
def _room(device: Device, what: str) -> Iterator[None]:
    """What is allocated inside must fit. Raises NoRoom."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        free, total = torch.cuda.mem_get_info(device.torch)
        sizes = f"{free / 2**20:,.0f} of {total / 2**20:,.0f} MiB were left"
        raise NoRoom(f"{what} do not fit on the device: {sizes}") from error


def load_on_gpu(checkpoint: Checkpoint, settings: EngineSettings, device: Device | None = None) -> CudaModel:
    """Packs a checkpoint's weights and checks the kernels. Raises BadFile, Unsupported, NoRoom, BitCheckFailed."""
    device = device or Device.found()
    kernels = _kernels()
    types = quantised_types(checkpoint)
    verdict = kept_verdict(kernels, (*types, *needs_of(checkpoint)), device)
    taken = CudaPack(device.torch)
    with _room(device, f"{checkpoint.path}: the weights"):
        family = build_model(checkpoint, taken)
    parts = (VERSION, kernels, settings.numerics, str(verdict.dropped), checkpoint.identity, str(family.config))
    return CudaModel(
        name=checkpoint.name,
        family=family,
        device=device,
        verdict=verdict,
        kernels=kernels,
        quantised=bool(types),
        fingerprint=fingerprint(*parts),
        weight_bytes=taken.bytes,
        decoded=taken.decoded,
        largest=taken.largest,
    )


def _kernels() -> str:
    """Names everything that the bits of a kernel depend on: its source, what compiles it, what runs it."""
    digest = hashlib.sha256()
    for path in sorted(Path(cuda.__file__).parent.iterdir()):
        if path.suffix in (".py", ".cu", ".h"):
            digest.update(path.name.encode() + path.read_bytes())
    return fingerprint(digest.hexdigest(), torch.__version__, triton.__version__, str(gpu()), str(gpu_driver()))


def kept_verdict(kernels: str, needs: tuple[str, ...], device: Device) -> Verdict:
    """The verdict on the kernels that a model needs, as `cuda_compile.subjects` has them. Raises BitCheckFailed."""
    path = cache_folder() / "bits" / f"{'-'.join((kernels, *needs))}.json"
    if device.is_gpu and not path.exists():
        compile_side_by_side(needs)
    verdict, kept = bit_check.check_once(path, lambda: subjects(device.torch, needs), torch.equal)
    logger.info("bit check: %s (%s)", verdict, "kept from before" if kept else f"{verdict.seconds:.1f} s")
    return verdict
