"""Compiles the kernels that a model needs, side by side: `python -m parkway.runner.cuda_compile SHARE OF NEED…` is one
of the processes that do. Knows no model.

One process would take a minute, since compiling holds Python's lock. What they leave are the compilers' caches on disk.
They are processes of their own rather than copies of ours, which would run a script that has no main guard once more.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from time import perf_counter

import torch

from parkway.backends.bit_check import Config, Subject
from parkway.backends.cuda import (
    attention_subjects,
    delta_subjects,
    experts_subjects,
    linear_subjects,
    quantised_subjects,
    rows_subjects,
    sample_subjects,
)
from parkway.machine import cores

logger = logging.getLogger(__name__)

CHECK_SEED = 0
DELTA_NETS, EXPERTS, GELU = "delta-nets", "experts", "gelu"
"""What a model may need beside the types of its matrices."""
MOST_COMPILERS = 12
"""Processes that compile side by side; each takes half a gigabyte on the device while it does."""


def subjects(device: torch.device, needs: tuple[str, ...]) -> Iterator[Subject]:
    """The kernels of bf16 matrices and of the sampler, and of whatever else a model needs: the types of its matrices,
    the shapes of its attention (and of rows before it) as `attention_subjects.need` writes them, and the names above.
    """
    shapes = {need: shape for need in needs if (shape := attention_subjects.shape_of(need))}
    types = tuple(each for each in needs if each not in (DELTA_NETS, EXPERTS, GELU, *shapes))
    yield from linear_subjects.subjects(device, CHECK_SEED, ("silu", "gelu") if GELU in needs else ("silu",))
    yield from quantised_subjects.subjects(device, CHECK_SEED, types, "gelu" if GELU in needs else "silu")
    yield from attention_subjects.subjects(device, CHECK_SEED, tuple(shapes.values()))
    yield from rows_subjects.subjects(device, CHECK_SEED, tuple(shapes.values()))
    yield from sample_subjects.subjects(device, CHECK_SEED)
    if DELTA_NETS in needs:
        yield from delta_subjects.subjects(device, CHECK_SEED)
    if EXPERTS in needs:
        yield from experts_subjects.subjects(device, CHECK_SEED, types)


def compile_side_by_side(needs: tuple[str, ...]) -> None:
    """Compiles every configuration of every subject. One that could not be is left to the check, which says so."""
    started, workers = perf_counter(), min(MOST_COMPILERS, len(cores()))
    command = [sys.executable, "-P", "-m", "parkway.runner.cuda_compile"]
    with ExitStack() as ended:  # leaving it closes their lifelines behind the last wait
        processes = [
            ended.enter_context(subprocess.Popen([*command, str(share), str(workers), *needs], stdin=subprocess.PIPE))
            for share in range(workers)
        ]
        for process in processes:
            process.wait()
    logger.info("compiled the kernels in %.1f s", perf_counter() - started)


def compile_share(share: int, of: int, needs: tuple[str, ...]) -> None:
    """Runs every `of`-th configuration of an operation, with all subjects that have it: they are of the same kernels,
    which no two processes should compile."""
    known: dict[tuple[str, Config], int] = {}
    for subject in subjects(torch.device("cuda"), needs):
        for config in subject.candidates:
            if known.setdefault((subject.name, config), len(known)) % of == share:
                with suppress(Exception):  # the check itself meets it again
                    subject.output(config, slice(0, 1))
                    subject.output(config, slice(0, subject.rows))


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    compile_share(int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:]))
