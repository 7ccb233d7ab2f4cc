"""From starting `parkway serve` to the first streamed text of a chat, model in cache; prints and records the median."""

import os
import re
from pathlib import Path
from time import perf_counter

from benchmarks import records
from benchmarks.command_line import model_of, parser
from parkway.bench.figures import Effort, take_turns
from parkway.bench.report import json_line
from parkway.bench.served import command, served
from parkway.bench.stream import Stream
from parkway.bench.windows import Watch, Window, median
from parkway.config import EngineSettings
from parkway.machine import machine, versions

COMMAND = "python -m benchmarks.startup"
FIGURE = "start to first streamed token, model in cache"
REACH_SECONDS = 3.0
CHAT = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4, "temperature": 0, "ignore_eos": True}
_TEXT = re.compile(rb'"content":"[^"]')


def start(path: Path) -> Window:
    """Starts a server, asks it as soon as it says that it serves, and waits for text. The window's value is seconds."""
    watch, started = Watch({os.getpid()}), perf_counter()
    with served(command(path, EngineSettings(device="cpu"))) as server:
        stream = Stream(server.address, "/v1/chat/completions", CHAT)
        while not (_TEXT.search(stream.received) or stream.ended):
            stream.wait()
        seconds = perf_counter() - started
        watch.join(server.pids)
        window = Window(seconds, watch.others())
        stream.finish()
    return window


def main() -> None:
    arguments = parser(__doc__, windows=5).parse_args()
    path = model_of(arguments)
    start(path)  # builds the kernels and fills the caches
    effort = Effort(quiet_windows=arguments.windows, most_windows=5 * arguments.windows)
    measured = median(take_turns({"": lambda: start(path)}, effort)[""])
    print(f"{FIGURE}: {measured.value:.2f} s, median; {measured.quiet} of {measured.windows} starts were quiet")
    if measured.quiet:
        records.write(
            arguments.results,
            figure=FIGURE,
            value=round(measured.value, 2),
            unit="s",
            better="lower",
            reach=REACH_SECONDS,
            command=COMMAND,
        )
    else:
        print("Not recorded: no start was quiet.")
    print(json_line({"machine": machine(), "versions": versions(), "seconds": measured.value, "quiet": measured.quiet}))


if __name__ == "__main__":
    main()
