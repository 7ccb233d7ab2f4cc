"""Many clients of four APIs at once for minutes, a third of whom go away in the middle, and what is left of them after.

python -m benchmarks.load [MODEL] [--seconds N] [--connections N]. The server is the real one, but its kernels sleep as
long as they would compute, so that the clients have cores to themselves. What the clients saw is compared with what the
server counted; memory and open files are compared over time.
"""

import json
import random
import re
import selectors
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import records
from benchmarks.command_line import model_of, parser
from benchmarks.kernel_clock import module_path
from benchmarks.memory import memory_of
from parkway.bench.served import Served, served
from parkway.bench.stream import Stream

COMMAND = "python -m benchmarks.load"
SLOTS = 64
"""More than the default pool holds chats of this size, so that some are parked."""
LEAVE_EARLY = 1 / 3
"""Share of the clients that go away before they have their answer."""
LOOK_SECONDS, SETTLE_SECONDS = 2.0, 3.0
_ENDS = {
    "/v1/chat/completions": b"data: [DONE]\n\n",
    "/v1/completions": b"data: [DONE]\n\n",
    "/v1/messages": b"event: message_stop\n",
    "/v1/responses": b'"type":"response.incomplete"',
}
_TOKENS = re.compile(rb'"(?:completion|output)_tokens":(\d+)')


class Ask(NamedTuple):
    """A request; after so many seconds the client has gone, if it didn't have its answer before."""

    path: str
    body: dict[str, Any]
    leaves_at: float


@dataclass(slots=True)
class Tally:
    """What became of the requests: answered, left, or what the server said instead; tokens of the answered."""

    sent: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    memory: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return self.ended.total() - self.ended["answered"] - self.ended["left"]


def drawn(draw: random.Random, now: float) -> Ask:
    """Half of the prompts begin as others did; answers end at their limit."""
    path, limit = draw.choice(list(_ENDS)), draw.randint(1, 128)
    said = f"Family {draw.randrange(draw.choice([8, 10_000]))}. " * draw.randint(1, 60)
    messages = [{"role": "user", "content": said}]
    body: dict[str, Any] = {"ignore_eos": True, "cache_prompt": draw.random() < 0.9}
    if path == "/v1/responses":
        body |= {"input": said, "max_output_tokens": limit}
    else:
        body |= {"prompt": said} if path == "/v1/completions" else {"messages": messages}
        body["max_tokens"] = limit
    if path.endswith("completions"):
        body["stream_options"] = {"include_usage": True}
    leaves_at = now + draw.expovariate(0.5) if draw.random() < LEAVE_EARLY else float("inf")
    return Ask(path, body, leaves_at)


class Clients:
    """So many at a time, each with a connection of its own for each request."""

    def __init__(self, server: Served, connections: int) -> None:
        self.tally = Tally()
        self._server = server
        self._connections = connections
        self._draw = random.Random(0)
        self._open: dict[Stream, Ask] = {}
        self._selector = selectors.DefaultSelector()

    def run(self, seconds: float) -> None:
        """Asks for so long; returns when the last answer has ended."""
        now = time.monotonic()
        ends_at, look_at = now + seconds, now
        while now < ends_at or self._open:
            while now < ends_at and len(self._open) < self._connections:
                self._begin(drawn(self._draw, now))
            for key, _ in self._selector.select(0.05):
                self._read(key.fileobj)
            now = time.monotonic()
            self._leave(now)
            if now >= look_at and now < ends_at:
                self._look()
                look_at = now + LOOK_SECONDS
        time.sleep(SETTLE_SECONDS)
        self._look()

    def _begin(self, ask: Ask) -> None:
        stream = Stream(self._server.address, ask.path, ask.body)
        self._open[stream] = ask
        self._selector.register(stream, selectors.EVENT_READ)
        self.tally.sent[ask.path] += 1

    def _read(self, stream: Any) -> None:
        number = stream.fileno()
        stream.drain()
        if stream.ended:
            self._selector.unregister(number)
            self._end(stream, self._open.pop(stream).path)

    def _end(self, stream: Stream, path: str) -> None:
        received = stream.received
        if received.startswith(b"HTTP/1.1 200") and _ENDS[path] in received[-4096:]:
            self.tally.ended["answered"] += 1
            self.tally.tokens += int(_TOKENS.findall(received)[-1])
        else:
            self.tally.ended[f"{received[:15].decode()}: {received[-200:].decode(errors='replace')}"] += 1

    def _leave(self, now: float) -> None:
        for stream in [each for each, ask in self._open.items() if ask.leaves_at <= now]:
            self._selector.unregister(stream)
            stream.close()
            del self._open[stream]
            self.tally.ended["left"] += 1

    def _look(self) -> None:
        self.tally.memory.append(memory_of(self._server)["rss"])
        self.tally.files.append(sum(psutil.Process(pid).num_fds() for pid in self._server.pids))


class Counts:
    """The samples of a page of metrics."""

    def __init__(self, page: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]

    def of(self, name: str, **labels: str) -> float:
        """The sum of those that have these labels."""
        samples = (each for each in self._samples if each.name == name and labels.items() <= each.labels.items())
        return sum(each.value for each in samples)


def differences(tally: Tally, told: Counts) -> list[str]:
    """Where the server's own counts say something else than its clients, each as a sentence."""
    found = []
    for path, sent in tally.sent.items():
        if (requests := told.of("http_requests_total", handler=path)) != sent:
            found.append(f"{path}: {sent} requests were sent, {requests:g} counted")
    reasons = ("stop", "length", "abort", "error")
    ends = {reason: told.of("vllm:request_success_total", finished_reason=reason) for reason in reasons}
    if sum(ends.values()) != tally.sent.total():
        found.append(f"{tally.sent.total()} answers were begun, these ended: {ends}")
    answered, left = tally.ended["answered"], tally.ended["left"]
    if not answered <= ends["length"] <= answered + left:  # who leaves at the last moment has been answered
        found.append(f"{answered} answers came, {ends['length']:g} counted")
    if (tokens := told.of("vllm:generation_tokens_total")) < tally.tokens:
        found.append(f"{tally.tokens} tokens came, {tokens:g} counted")
    return found


def left_behind(told: Counts) -> float:
    """What should be nothing once everybody has gone: chats, pages, parked chats, bytes on the host."""
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    ours = ("requests_processing", "requests_deferred", "requests_preempted", "preempt_ram_bytes")
    theirs = sum(told.of(f"vllm:{name}") for name in names) + sum(told.of(f"llamacpp:{name}") for name in ours)
    return theirs + told.of("parkway:host_bytes")


def growth(memory: Sequence[int]) -> float:
    """The pool and the host's copies have been filled once after a quarter; what grows later would grow on."""
    quarter = len(memory) // 4
    return max(memory[3 * quarter :]) / max(memory[quarter : 2 * quarter])


def loaded(path: Path, connections: int, seconds: float) -> tuple[Tally, Counts]:
    """The clients' tally and the server's own counts after it."""
    with NamedTemporaryFile() as clock:
        clock.write(bytes(8))
        clock.flush()
        variables = {"PYTHONPATH": module_path(), "KERNEL_CLOCK": clock.name, "PARKWAY_LOG": "warnings"}
        with served([sys.executable, "-m", "benchmarks.paced_server", str(path), str(SLOTS)], variables) as server:
            clients = Clients(server, connections)
            clients.run(seconds)
            return clients.tally, Counts(page_of(server))


def page_of(server: Served) -> str:
    host, port = server.address
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as page:
        told: str = page.read().decode()
        return told


def main() -> None:
    arguments_of = parser(__doc__, windows=1)
    arguments_of.add_argument("--seconds", type=float, default=300.0, help="for which clients come (300)")
    arguments_of.add_argument("--connections", type=int, default=200, help="open at a time (200)")
    arguments = arguments_of.parse_args()
    tally, told = loaded(model_of(arguments), arguments.connections, arguments.seconds)
    otherwise = differences(tally, told)
    print(
        f"{json.dumps(tally.ended, indent=1)}\n{told.of('vllm:num_preemptions_total'):g} parks, {tally.tokens} tokens"
    )
    print("resident MiB over time:", *(f"{value / 2**20:.0f}" for value in tally.memory))
    print("open files over time:", *tally.files)
    print(*otherwise, sep="\n")
    for name, value, unit, reach in (
        ("requests without an answer", tally.lost, "requests", 0.0),
        ("answers of 5xx", told.of("http_requests_total", status="5xx"), "answers", 0.0),
        ("counts of the server that differ from its clients'", len(otherwise), "counts", 0.0),
        ("chats, pages and bytes left behind", left_behind(told), "of all", 0.0),
        ("open files left behind", max(0, tally.files[-1] - tally.files[0]), "files", 0.0),
        ("most memory of the last quarter over that of the second", growth(tally.memory), "times", 1.05),
    ):
        made = records.write(
            arguments.results,
            figure=f"{arguments.connections} connections, a third leaving early: {name}",
            value=float(f"{value:.4g}"),
            unit=unit,
            better="lower",
            reach=reach,
            command=COMMAND,
        )
        print(f"{made.figure}: {value:,.4g} (reach {reach:g}){'' if made.reached else ' SHORT'}")


if __name__ == "__main__":
    main()
