"""Resident memory of the API and the engine process with a full KV pool; prints it, records it beside its bound.

Counted is PSS, which shares a page that both processes map between them; RSS, which counts it twice, is printed too.
"""

import time

import psutil

from benchmarks import records
from benchmarks.command_line import model_of, parser
from parkway.bench.report import json_line
from parkway.bench.served import Served, command, served
from parkway.bench.stream import Stream
from parkway.config import EngineSettings
from parkway.engine.build import build_engine
from parkway.machine import machine, versions

COMMAND = "python -m benchmarks.memory"
FIGURE = "resident memory of both processes (PSS), KV pool full"
ANSWER_TOKENS = 64
_LOOK_SECONDS = 0.25
_MIB = 2**20


def main() -> None:
    arguments = parser(__doc__, windows=1).parse_args()
    path, settings = model_of(arguments), EngineSettings(device="cpu")
    bound_mib = bound(path.stat().st_size, build_engine(path, settings).facts.pool_bytes) / _MIB
    with served(command(path, settings)) as server:
        idle, full = measure(server, settings)
    print(f"Idle: {told(idle)}. With a full pool: {told(full)}. Bound: {bound_mib:.0f} MiB of PSS.")
    records.write(
        arguments.results,
        figure=FIGURE,
        value=round(full["pss"] / _MIB, 1),
        unit="MiB",
        better="lower",
        reach=round(bound_mib, 1),
        command=COMMAND,
    )
    print(json_line({"machine": machine(), "versions": versions(), "bound_mib": bound_mib, "idle": idle, "full": full}))


def bound(file_bytes: int, pool_bytes: int) -> float:
    """Bytes that both processes may take."""
    return 1.4 * (file_bytes + pool_bytes) + 150 * _MIB


def measure(server: Served, settings: EngineSettings) -> tuple[dict[str, int], dict[str, int]]:
    """Memory before the first request, and the most while as many chats as there are slots fill the pool."""
    idle = full = memory_of(server)
    tokens = settings.ctx_size // settings.parallel - ANSWER_TOKENS
    streams = [_ask(server, slot, tokens) for slot in range(settings.parallel)]
    pool_use = 0.0
    while not all(stream.ended for stream in streams):
        time.sleep(_LOOK_SECONDS)
        for stream in streams:
            stream.drain()
        pool_use = max(pool_use, server.gauge("kv_cache_usage_perc"))
        full = max(full, memory_of(server), key=lambda each: each["pss"])
    for stream in streams:
        stream.check()
    if pool_use < 1:
        raise RuntimeError(f"only {pool_use:.0%} of the pool was in use")
    return idle, full


def _ask(server: Served, first: int, tokens: int) -> Stream:
    """A chat with a prompt of its own."""
    prompt = [first, *range(100, 100 + tokens - 1)]
    body = {"prompt": prompt, "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
    return Stream(server.address, "/v1/completions", body)


def memory_of(server: Served) -> dict[str, int]:
    """Bytes of all the server's processes: PSS and RSS."""
    each = [psutil.Process(pid).memory_full_info() for pid in server.pids]
    return {"pss": sum(memory.pss for memory in each), "rss": sum(memory.rss for memory in each)}


def told(memory: dict[str, int]) -> str:
    return f"{memory['pss'] / _MIB:.0f} MiB of PSS, {memory['rss'] / _MIB:.0f} MiB of RSS"


if __name__ == "__main__":
    main()
