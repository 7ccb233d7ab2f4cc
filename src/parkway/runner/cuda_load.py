"""A model on the GPU: weights packed once, checked for exactness, and a runner for each engine that shares them."""

import hashlib
import itertools
import logging
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
import triton

from parkway.backends import bit_check, cuda
from parkway.backends.bit_check import Subject, Verdict
from parkway.backends.cuda import attention_subjects, linear_subjects, quantised_subjects, sample_subjects
from parkway.backends.cuda.attention import Choices, few_candidates, many_candidates
from parkway.backends.cuda.chooser import Chooser
from parkway.backends.cuda.device import EARLY_ABOVE, Device
from parkway.backends.cuda.fast import FastLinears, FastOps
from parkway.backends.cuda.linears import ExactLinears
from parkway.backends.cuda.operations import CudaOps, Pool
from parkway.backends.cuda.tuner import Tuner
from parkway.backends.cuda.weights import FLOATS, CudaMatrix, Together, pack, together
from parkway.backends.quant import decode
from parkway.config import EngineSettings
from parkway.errors import NoRoom
from parkway.fingerprint import VERSION, fingerprint
from parkway.machine import cache_folder, cores, gpu, gpu_driver
from parkway.memory.cuda_page_store import CudaPageStore
from parkway.models import Dense, build_model
from parkway.runner.cuda_runner import CudaRunner
from parkway.runner.cuda_step import Sizes, Steps
from parkway.weights.checkpoint import Checkpoint, RawTensor

logger = logging.getLogger(__name__)

BATCH_TOKENS = 4096
"""Rows of a step unless the settings say otherwise: enough for the matrix units, few enough for a tenth of a second."""
MAX_LOGIT_ROWS = 64
CHECK_SEED = 0
MOST_COMPILERS = 12
"""Processes that compile side by side; each takes half a gigabyte on the device while it does."""


class CudaPack:
    """Takes a file's tensors to the device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.bytes = 0

    def matrix(self, tensor: RawTensor, bias: RawTensor | None = None) -> CudaMatrix:
        added = None if bias is None else self.vector(bias)
        made = pack(tensor.name, tensor.type.name, tensor.raw, tensor.shape[-1], added, self._device)
        self.bytes += made.bytes
        return made

    def vector(self, tensor: RawTensor) -> torch.Tensor:
        values = decode(tensor.name, tensor.type.name, tensor.raw).reshape(-1).copy()
        return torch.from_numpy(values).to(self._device)

    def together(self, *matrices: CudaMatrix) -> Together:
        return together(matrices)


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

    @property
    def vocab_size(self) -> int:
        return self.family.config.vocabulary

    def runner(self, settings: EngineSettings) -> CudaRunner:
        """A runner with a pool and buffers of its own. Raises NoRoom."""
        with _room(self.device, f"--ctx-size {settings.ctx_size}, --parallel {settings.parallel}: the buffers"):
            return self._runner(settings)

    def _runner(self, settings: EngineSettings) -> CudaRunner:
        config, device = self.family.config, self.device
        store = CudaPageStore(settings.ctx_size, config.kv, device.torch)
        turns = torch.from_numpy(config.rope.turns(settings.ctx_size)).to(device.torch)
        pool = Pool(config.kv, config.heads, store.memory, config.rope, turns)
        sizes = Sizes(
            slots=settings.parallel,
            rows=max(settings.batch_size or BATCH_TOKENS, settings.parallel),
            logit_rows=max(MAX_LOGIT_ROWS, settings.parallel),
            pages=store.pages,
        )
        steps = Steps(
            self.family, self._operations(pool, settings), pool, sizes, device, graphs=settings.cuda_graphs == "on"
        )
        exact = settings.numerics == "exact"
        runner = CudaRunner(steps, store, device, exact=exact, bit_check=str(self.verdict))
        runner.warm()
        return runner

    def _operations(self, pool: Pool, settings: EngineSettings) -> CudaOps:
        group, head_dim = pool.heads // pool.kv.kv_heads, pool.kv.head_dim
        few = self.verdict.allowed("attention", few_candidates(group, head_dim))
        many = self.verdict.allowed("attention", many_candidates(group, head_dim))
        chooser = Chooser(Tuner(cache_folder() / "tuned" / f"{self.kernels}.json", self.verdict))
        exact = settings.numerics == "exact"
        linears = (ExactLinears if exact else FastLinears)(chooser, self.device)
        early_above = 0 if self.quantised else EARLY_ABOVE
        return (CudaOps if exact else FastOps)(pool, linears, Choices(few, many), self.device, early_above)


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
    types = _quantised(checkpoint)
    verdict = kept_verdict(kernels, types, device)
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
    )


def _kernels() -> str:
    """Names everything that the bits of a kernel depend on: its source, what compiles it, what runs it."""
    digest = hashlib.sha256()
    for path in sorted(Path(cuda.__file__).parent.iterdir()):
        if path.suffix in (".py", ".cu", ".h"):
            digest.update(path.name.encode() + path.read_bytes())
    return fingerprint(digest.hexdigest(), torch.__version__, triton.__version__, str(gpu()), str(gpu_driver()))


def _quantised(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The checkpoint's types whose kernels multiply them as they are."""
    kinds = {tensor.type.name for tensor in checkpoint.tensors.values()}
    return tuple(sorted(kinds - set(FLOATS)))


def kept_verdict(kernels: str, types: tuple[str, ...], device: Device) -> Verdict:
    """The verdict on this machine's kernels for matrices of these types and bf16. Raises BitCheckFailed."""
    path = cache_folder() / "bits" / f"{'-'.join((kernels, *types))}.json"
    if device.is_gpu and not path.exists():
        _compile_side_by_side(types)
    verdict, kept = bit_check.check_once(path, lambda: subjects(device.torch, types), torch.equal)
    logger.info("bit check: %s (%s)", verdict, "kept from before" if kept else f"{verdict.seconds:.1f} s")
    return verdict


def _compile_side_by_side(types: tuple[str, ...]) -> None:
    """Fills the compilers' caches on disk: one process would take a minute, since compiling holds Python's lock."""
    started, workers = perf_counter(), min(MOST_COMPILERS, len(cores()))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_compile_share, itertools.repeat(types), range(workers), itertools.repeat(workers)))
    logger.info("compiled the kernels in %.1f s", perf_counter() - started)


def _compile_share(types: tuple[str, ...], share: int, of: int) -> None:
    """Runs every `of`-th configuration of every subject once."""
    device = torch.device("cuda")
    runs = ((subject, config) for subject in subjects(device, types) for config in subject.candidates)
    for subject, config in itertools.islice(runs, share, None, of):
        with suppress(Exception):  # the check itself meets it again, and says so
            subject.output(config, slice(0, 1))
            subject.output(config, slice(0, subject.rows))


def subjects(device: torch.device, types: tuple[str, ...]) -> Iterator[Subject]:
    yield from linear_subjects.subjects(device, CHECK_SEED)
    yield from quantised_subjects.subjects(device, CHECK_SEED, types)
    yield from attention_subjects.subjects(device, CHECK_SEED)
    yield from sample_subjects.subjects(device, CHECK_SEED)
