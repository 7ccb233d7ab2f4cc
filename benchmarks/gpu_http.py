"""Decode through HTTP: many streams of a server that computes on the GPU, read by one client on other cores."""

import os
import random
import selectors
from pathlib import Path
from time import perf_counter

from parkway.bench.served import Served, command, served
from parkway.bench.stream import Stream
from parkway.config import EngineSettings


def http_decode_rate(path: Path, settings: EngineSettings, vocab_size: int, *, prompt: int, answer: int) -> float:
    """Tokens per second of as many streams as there are slots: the time for whole answers less that for one token."""
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = cores[: len(cores) // 4], cores[len(cores) // 4 :]
    os.sched_setaffinity(0, theirs)  # what a child inherits
    with served(command(path, settings)) as server:
        os.sched_setaffinity(0, ours)
        client = _Client(server, vocab_size, settings.parallel, prompt)
        client.seconds(answer)  # captures graphs
        whole = min(client.seconds(answer) for _ in range(3))
        first = min(client.seconds(1) for _ in range(3))
    os.sched_setaffinity(0, cores)
    return settings.parallel * (answer - 1) / (whole - first)


class _Client:
    def __init__(self, server: Served, vocab_size: int, streams: int, prompt_tokens: int) -> None:
        self._server = server
        self._vocabulary = range(vocab_size)
        self._streams = streams
        self._prompt_tokens = prompt_tokens
        self._random = random.Random(2)

    def seconds(self, answer_tokens: int) -> float:
        """From the first request to the end of the last answer."""
        bodies = [self._body(answer_tokens) for _ in range(self._streams)]
        started = perf_counter()
        streams = [Stream(self._server.address, "/v1/completions", body) for body in bodies]
        with selectors.DefaultSelector() as selector:
            for stream in streams:
                selector.register(stream, selectors.EVENT_READ, stream)
            while selector.get_map():
                for key, _ in selector.select():
                    self._read(selector, key.data)
        return perf_counter() - started

    def _read(self, selector: selectors.BaseSelector, stream: Stream) -> None:
        descriptor = stream.fileno()
        stream.drain()
        if stream.ended:
            selector.unregister(descriptor)
            stream.check()

    def _body(self, answer_tokens: int) -> dict[str, object]:
        prompt = self._random.choices(self._vocabulary, k=self._prompt_tokens)
        return {"prompt": prompt, "max_tokens": answer_tokens, "temperature": 0, "ignore_eos": True}
