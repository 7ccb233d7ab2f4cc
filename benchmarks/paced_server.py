"""The real server, which tells what its kernels cost, with kernels that are real, asleep or none.

python -m benchmarks.paced_server MODEL SLOTS, with the repository's root on PYTHONPATH for the engine process. The
variable KERNELS says which: `asleep` (the default) compute nothing and take as long as the real ones; those that are
`none` take no time. Both answer with TEXT. KERNEL_CLOCK names a file of eight bytes for `timed`.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import uvloop

from benchmarks.kernel_clock import named, shared_clock, timed
from parkway.api.server import Server, listen, logged
from parkway.api.sleeping import SleepingDoor
from parkway.backends.cpu.library import Batch, Sample, library
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
    """The engine process's factory: the real engine, whose calls into C++ are timed."""
    which, cpp = os.environ.get("KERNELS", "asleep"), cast(Any, library())
    kernels = cpp.pk_program_run if which == "real" else stand_in(path, paced=which == "asleep")
    clock = shared_clock(Path(os.environ["KERNEL_CLOCK"]))
    cpp.pk_program_run, cpp.pk_program_again = timed(kernels, clock), timed(cpp.pk_program_again, clock)
    cpp.pk_pool_new = named(cpp.pk_pool_new)
    return build_engine(path, settings)


def stand_in(path: Path, *, paced: bool) -> Callable[[int, Any], None]:
    """Kernels that only sleep, or not even that, and answer with TEXT."""
    token_ids = text_of(path).tokenizer.encode(TEXT)

    def run(program: int, pointer: Any) -> None:
        batch: Batch = pointer._obj
        if paced:
            time.sleep(STEP_SECONDS + ROW_SECONDS * batch.rows)
        for sample in (Sample * batch.logit_rows).from_address(batch.samples):
            sample.token = token_ids[sample.position % len(token_ids)]

    return run


@cache
def text_of(path: Path) -> ModelText:
    return ModelText.from_path(path)


async def main(path: Path, slots: int) -> int:
    with listen("127.0.0.1", 0) as listener:
        settings = EngineSettings(device="cpu", parallel=slots)
        start = partial(ProcessDoor.start, path, settings, FACTORY)
        door = SleepingDoor(await start(), start, -1, lambda view: None)
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
