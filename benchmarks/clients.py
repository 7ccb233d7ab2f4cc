"""What clients feel: a schema's price, headers under full load, and pages while a long prompt is computed.

python -m benchmarks.clients [MODEL] [PART ...] starts the server as a user would, measures and records.
"""

import argparse
import http.client
import json
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from benchmarks import records
from parkway.bench.served import Served, command, served
from parkway.bench.stream import Stream
from parkway.config import EngineSettings
from parkway.weights import default_model

COMMAND = "python -m benchmarks.clients"
CHAT = "/v1/chat/completions"
STREAMS, ROUNDS, ANSWER = 4, 5, 200
HEADERS = 40
LONG_PROMPT = 7900
PAGES = ("/health", "/slots", "/metrics")
REACH_RATIO, REACH_HEADERS_MS, REACH_PAGE_MS = 0.85, 20.0, 50.0
_PACKAGES = ("fastapi", "uvicorn", "llguidance")
_PERSON = {"name": {"type": "string"}, "age": {"type": "integer"}, "city": {"enum": ["Paris", "London", "Rome"]}}
_BOUNDED = {"type": "string", "minLength": 3, "maxLength": 12}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(name: str, items: dict[str, Any]) -> dict[str, Any]:
    """Longer than any answer that is asked for, so that all kinds have as many tokens."""
    return _closed({name: {"type": "array", "items": items, "minItems": 400}})


SCHEMAS = {"a schema": _list("people", _closed(_PERSON)), "a schema of strings of bounded length": _list("w", _BOUNDED)}


def chat(question: str, tokens: int, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}], "max_tokens": tokens, "seed": 1, **more}


def rate(server: Served, **more: Any) -> float:
    """Tokens per second of some streams at once, from the arrival to the end of all."""
    started = time.perf_counter()
    streams = [Stream(server.address, CHAT, chat(f"List words, {i}.", ANSWER, **more)) for i in range(STREAMS)]
    for stream in streams:
        stream.finish()
    return STREAMS * ANSWER / (time.perf_counter() - started)


def schema(server: Served, results: Path) -> None:
    """Plain and bound by a schema in turns; the schemas are known to the server after the first round."""
    kinds: dict[str, dict[str, Any]] = {"plain": {"ignore_eos": True}}
    for name, bound in SCHEMAS.items():
        kinds[name] = {"response_format": {"type": "json_schema", "json_schema": {"name": "list", "schema": bound}}}
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS + 1):
        for name, more in kinds.items():
            rates[name].append(rate(server, **more))
    plain = statistics.median(rates.pop("plain")[1:])
    for name, found in rates.items():
        print(f"{STREAMS} streams: plain {plain:,.0f}, with {name} {statistics.median(found[1:]):,.0f} tok/s")
        what = f"tokens per second with {name} over without, {STREAMS} streams"
        record(results, what, statistics.median(found[1:]) / plain, "times")


def headers(server: Served, results: Path) -> None:
    """From the last byte of a valid request to the first of its headers, while every slot computes."""
    with busy(server):
        waits = sorted(first_byte(server) for _ in range(HEADERS))
    print(f"headers of {HEADERS} requests: median {statistics.median(waits):.1f}, maximum {waits[-1]:.1f} ms")
    record(results, "first byte of headers under full load, maximum", waits[-1], "ms", REACH_HEADERS_MS, "lower")


def pages(server: Served, results: Path) -> None:
    """How long pages take while a prompt that fills the context is computed."""
    host, port = server.address
    waits: dict[str, list[float]] = {page: [] for page in PAGES}
    prompt = Stream(server.address, "/v1/completions", {"prompt": [5] * LONG_PROMPT, "max_tokens": 1})
    while not prompt.ended:
        for page in PAGES:
            waits[page].append(milliseconds(lambda page=page: fetch(host, port, page)))  # type: ignore[misc]
        prompt.drain()
    for page, found in waits.items():
        print(f"{page}: {len(found)} times, median {statistics.median(found):.1f}, maximum {max(found):.1f} ms")
        what = f"{page} while a prompt of {LONG_PROMPT} tokens is computed, maximum"
        record(results, what, max(found), "ms", REACH_PAGE_MS, "lower")


@contextmanager
def busy(server: Served) -> Iterator[None]:
    """All slots compute and as many chats wait for one."""
    streams = [Stream(server.address, CHAT, chat(f"Go on, {i}.", 1500, ignore_eos=True)) for i in range(2 * STREAMS)]
    for stream in streams[:STREAMS]:
        while b"data: {" not in stream.received:
            stream.wait()
    reader = threading.Thread(target=_read, args=(streams, stop := threading.Event()))
    reader.start()
    try:
        yield
    finally:
        stop.set()
        reader.join()
        for stream in streams:
            stream.close()


def _read(streams: list[Stream], stop: threading.Event) -> None:
    while not stop.wait(0.01):
        for stream in streams:
            stream.drain()


def first_byte(server: Served) -> float:
    body = json.dumps(chat("Hello?", 4, stream=True)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(server.address) as connection:
        connection.sendall(head + body)
        return milliseconds(lambda: connection.recv(1))


def fetch(host: str, port: int, page: str) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request("GET", page)
    connection.getresponse().read()
    connection.close()


def milliseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - started)


def record(
    results: Path,
    figure: str,
    value: float,
    unit: str,
    reach: float = REACH_RATIO,
    better: Literal["higher", "lower"] = "higher",
) -> None:
    records.write(
        results,
        figure=figure,
        value=float(f"{value:.4g}"),
        unit=unit,
        better=better,
        reach=reach,
        command=COMMAND,
        packages=_PACKAGES,
    )


PARTS = {"schema": schema, "headers": headers, "pages": pages}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--model", type=Path, metavar="MODEL", help="GGUF file (default: the default model)")
    parser.add_argument("--results", type=Path, default=records.RESULTS / "cpu.json", help="where records go")
    arguments = parser.parse_args()
    path = arguments.model or default_model.fetch()
    with served(command(path, EngineSettings(device="cpu", parallel=STREAMS))) as server:
        for name in arguments.parts:
            PARTS[name](server, arguments.results)


if __name__ == "__main__":
    main()
