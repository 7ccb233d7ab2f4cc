"""A server as its clients see it: streamed completions over loopback. Knows no engine."""

import os
import random
from time import perf_counter, sleep

from parkway.bench.figures import ANSWER_TOKENS, PROMPT_TOKENS, Timed
from parkway.bench.served import Served
from parkway.bench.stream import Stream

_LOOK_SECONDS = 0.02
"""Between two looks at the sockets. A client that wakes for every token would take its time from the kernels."""


class HttpSubject:
    """A `Subject`. Tokens are counted by the server's own counter, which every step moves: not each has a frame."""

    def __init__(self, server: Served, vocab_size: int) -> None:
        self.pids = (os.getpid(), *server.pids)
        self._server = server
        self._vocab_size = vocab_size
        self._random = random.Random(1)
        self._streams: list[Stream] = []
        self._begun_at = 0.0
        """The counter of answer tokens when the streams began."""

    def prefill(self, tokens: int, seconds: float) -> Timed:
        self._leave()
        started, passes = perf_counter(), 0
        while not passes or perf_counter() - started < seconds:
            self._ask(tokens, 1).finish()
            passes += 1
        return Timed(passes * tokens, perf_counter() - started)

    def ready(self, streams: int, answer_tokens: int) -> None:
        if len(self._streams) == streams and self._left >= answer_tokens:
            return
        self._leave()
        self._begun_at = self._server.gauge("generation_tokens_total")
        prompts_end = self._server.gauge("prompt_tokens_total") + streams * PROMPT_TOKENS
        # Far more than will be used: no stream should end in a window, and the first decode while the last prefill.
        self._streams = [self._ask(PROMPT_TOKENS, 4 * ANSWER_TOKENS) for _ in range(streams)]
        while self._server.gauge("prompt_tokens_total") < prompts_end:
            self._look()

    def decode(self, seconds: float) -> Timed:
        tokens, started = self._server.gauge("generation_tokens_total"), perf_counter()
        while perf_counter() - started < seconds and not any(stream.ended for stream in self._streams):
            self._look()
        timed = Timed(round(self._server.gauge("generation_tokens_total") - tokens), perf_counter() - started)
        self._leave()  # what went on decoding would take the cores from the next subject's window
        return timed

    def close(self) -> None:
        """Hangs up on what still runs."""
        for stream in self._streams:
            stream.close()
        self._streams = []

    @property
    def _left(self) -> float:
        """Answer tokens that each stream, on average, has left of ANSWER_TOKENS."""
        if any(stream.ended for stream in self._streams):
            return 0
        given = self._server.gauge("generation_tokens_total") - self._begun_at
        return ANSWER_TOKENS - given / len(self._streams)

    def _look(self) -> None:
        sleep(_LOOK_SECONDS)
        for stream in self._streams:
            stream.drain()
            if stream.ended:
                stream.check()

    def _ask(self, tokens: int, answer_tokens: int) -> Stream:
        prompt = self._random.choices(range(self._vocab_size), k=tokens)
        body = {"prompt": prompt, "max_tokens": answer_tokens, "temperature": 0, "ignore_eos": True}
        return Stream(self._server.address, "/v1/completions", body)

    def _leave(self) -> None:
        self.close()
        while self._server.gauge("num_requests_running"):
            sleep(_LOOK_SECONDS)
