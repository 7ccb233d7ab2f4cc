"""The real server with kernels that compute nothing and take as long as the real ones, asleep. Everything else is real.

python -m benchmarks.paced_server MODEL SLOTS, with the repository's root on PYTHONPATH for the engine process. The
variable PACED_CLOCK names a file of eight bytes, in which the engine keeps the CPU nanoseconds that pacing has cost;
PACED=no lets the steps follow each other at once.
"""

import asyncio
import ctypes as C
import mmap
import os
import sys
import time
from functools import cache
from pathlib import Path

import uvloop

from parkway.api.server import Server, listen, logged
from parkway.backends.cpu.library import Batch, Sample
from parkway.backends.cpu.program import Program
from parkway.config import EngineSettings, ServerSettings
from parkway.engine.build import build_engine
from parkway.engine.engine import Engine
from parkway.engine.process_door import ProcessDoor
from parkway.text import ModelText

FACTORY = "benchmarks.paced_server:build"
STEP_SECONDS, ROW_SECONDS = 0.0026, 0.00055
"""The default model on two cores of a Zen 4: 3.1 ms for a step of one row, 11.4 ms for 16 rows."""
TEXT = "The quick brown fox jumps over the lazy dog, and both of them wonder what for; nobody ever asked them to. "


def build(path: Path, settings: EngineSettings) -> Engine:
    """The engine process's factory: the real engine, whose program only sleeps and answers with TEXT."""
    token_ids = text_of(path).tokenizer.encode(TEXT)
    spent = shared_clock(Path(os.environ["PACED_CLOCK"]))
    paced = os.environ.get("PACED") != "no"

    def run(self: Program, batch: Batch) -> None:
        started = time.thread_time_ns()
        if paced:
            time.sleep(STEP_SECONDS + ROW_SECONDS * batch.rows)
        for sample in (Sample * batch.logit_rows).from_address(batch.samples):
            sample.token = token_ids[sample.position % len(token_ids)]
        spent.value += time.thread_time_ns() - started

    Program.run = run  # type: ignore[method-assign]
    return build_engine(path, settings)


def shared_clock(path: Path) -> C.c_int64:
    """A number that lies in a file of eight bytes, so that two processes can see it."""
    with path.open("r+b") as file:
        return C.c_int64.from_buffer(mmap.mmap(file.fileno(), 8))


@cache
def text_of(path: Path) -> ModelText:
    return ModelText.from_path(path)


async def main(path: Path, slots: int) -> int:
    with listen("127.0.0.1", 0) as listener:
        settings = EngineSettings(device="cpu", parallel=slots)
        door = await ProcessDoor.start(path, settings, FACTORY)
        try:
            server = Server(settings, ServerSettings())
            server.begin(door, text_of(path))
            with logged(settings):
                await server.serve([listener])
            return server.exit_code
        finally:
            door.close()
            await door.gone()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main(Path(sys.argv[1]), int(sys.argv[2]))))
