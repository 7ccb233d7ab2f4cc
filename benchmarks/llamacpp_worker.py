"""llama.cpp as a worker: one JSON command a line on stdin, one JSON answer a line on stdout.

Runs under an interpreter that has `llama_cpp` and the NumPy that comes with it, so it imports nothing else but the
standard library; knows no Parkway.
"""

import ctypes
import json
import os
import random
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import llama_cpp as ll
import numpy as np

PROMPT_TOKENS, ANSWER_TOKENS = 100, 256
_VECTORS = ("AVX2", "AVX512", "AVX512_VNNI", "AVX512_BF16", "AMX_INT8")
_QUIET: Any = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda level, text, user: None)


class Batch:
    """Tokens for one `llama_decode`, each with a sequence and a position."""

    def __init__(self, size: int) -> None:
        self._batch: Any = ll.llama_batch_init(size, 0, 1)

    def fill(self, tokens: list[int], positions: list[int], sequences: list[int], wants_logits: list[bool]) -> Any:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, positions[i]
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequences[i]
            batch.logits[i] = wants_logits[i]
        return batch


class Context:
    """A llama_context of its own for each load, so that none pays for the sequences of another.

    Its sequences keep their KV apart, llama.cpp's default: a unified KV was as fast at 1 and 4 streams, slower at 16.
    """

    def __init__(self, model: Any, threads: int, sequences: int, positions: int) -> None:
        how: Any = ll.llama_context_default_params()
        how.n_seq_max, how.n_ctx = sequences, sequences * positions
        how.n_batch = how.n_ubatch = 512
        how.n_threads = how.n_threads_batch = threads
        self._context: Any = ll.llama_init_from_model(model, how)
        if not self._context:
            raise RuntimeError(f"llama.cpp makes no context for {sequences} sequences")
        self._batch = Batch(512)
        self._random = random.Random(0)
        self._vocab_size = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))

    def tokens(self, count: int) -> list[int]:
        return self._random.choices(range(self._vocab_size), k=count)

    def prefill(self, tokens: int, sequence: int) -> None:
        """A whole prompt in one call, logits for its last token."""
        self.forget(sequence, 0)
        wanted = [False] * (tokens - 1) + [True]
        self._decode(self.tokens(tokens), list(range(tokens)), [sequence] * tokens, wanted)

    def step(self, sequences: int, position: int) -> None:
        """One token for each sequence in one call, logits for all."""
        each = list(range(sequences))
        self._decode(self.tokens(sequences), [position] * sequences, each, [True] * sequences)

    def score(self, token_ids: list[int], top: int) -> list[list[tuple[int, float]]]:
        """Of each token of a sequence: the most probable ones behind it and their log-probabilities, falling."""
        found = []
        for start in range(0, len(token_ids), 512):
            part = token_ids[start : start + 512]
            positions = list(range(start, start + len(part)))
            self._decode(part, positions, [0] * len(part), [True] * len(part))
            found += [self._most_probable(row, top) for row in range(len(part))]
        return found

    def forget(self, sequence: int, start: int) -> None:
        ll.llama_memory_seq_rm(ll.llama_get_memory(self._context), sequence, start, -1)

    def _most_probable(self, row: int, top: int) -> list[tuple[int, float]]:
        logits = np.ctypeslib.as_array(ll.llama_get_logits_ith(self._context, row), (self._vocab_size,)).astype(float)
        ids = np.argsort(-logits)[:top]
        logprobs = logits[ids] - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        return list(zip(ids.tolist(), logprobs.tolist(), strict=True))

    def _decode(self, tokens: list[int], positions: list[int], sequences: list[int], wanted: list[bool]) -> None:
        code = ll.llama_decode(self._context, self._batch.fill(tokens, positions, sequences, wanted))
        if code:
            raise RuntimeError(f"llama_decode returned {code}")
        ll.llama_synchronize(self._context)


class Worker:
    """The commands. Times are of the calls into llama.cpp and the loop around them; it samples nothing."""

    def __init__(self, path: str, threads: int) -> None:
        self._model: Any = ll.llama_model_load_from_file(path.encode(), ll.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp can't load {path}")
        self._threads = threads
        self._prompts = Context(self._model, threads, 1, 512)
        self._streams: dict[int, Context] = {}
        self._count = 0
        self._given = 0

    def prefill(self, tokens: int, seconds: float) -> dict[str, float]:
        started, passes = perf_counter(), 0
        while not passes or perf_counter() - started < seconds:
            self._prompts.prefill(tokens, 0)
            passes += 1
        return {"tokens": passes * tokens, "seconds": perf_counter() - started}

    def ready(self, streams: int, answer_tokens: int) -> dict[str, float]:
        """Streams with their prompts computed and room for more answer tokens."""
        if streams not in self._streams:
            self._streams[streams] = self._prompted(streams)
        if streams != self._count or self._given + answer_tokens > ANSWER_TOKENS:
            for sequence in range(streams):
                self._streams[streams].forget(sequence, PROMPT_TOKENS)
            self._count, self._given = streams, 0
        return {}

    def decode(self, seconds: float) -> dict[str, float]:
        context, before, started = self._streams[self._count], self._given, perf_counter()
        while self._given < ANSWER_TOKENS and perf_counter() - started < seconds:
            context.step(self._count, PROMPT_TOKENS + self._given)
            self._given += 1
        return {"tokens": self._count * (self._given - before), "seconds": perf_counter() - started}

    def score(self, token_ids: list[int], top: int) -> dict[str, Any]:
        return {"tops": Context(self._model, self._threads, 1, len(token_ids)).score(token_ids, top)}

    def _prompted(self, streams: int) -> Context:
        context = Context(self._model, self._threads, streams, 512)
        for sequence in range(streams):
            context.prefill(PROMPT_TOKENS, sequence)
        return context


def facts() -> dict[str, str]:
    """The binding's version and what its kernels were built for: "0.3.36 (AVX2, AVX512, …)"."""
    told = ll.llama_print_system_info().decode()
    built = [name for name in _VECTORS if f"{name} = 1" in told]
    return {"version": f"{ll.__version__} ({', '.join(built)})"}


def requantize(source: str, target: str) -> dict[str, str]:
    """The same weights as Q4_0 by llama.cpp itself; token embeddings, which are the output matrix too, stay Q8_0."""
    how: Any = ll.llama_model_quantize_default_params()
    how.ftype, how.allow_requantize = ll.LLAMA_FTYPE_MOSTLY_Q4_0, True
    how.output_tensor_type = how.token_embedding_type = ll.GGML_TYPE_Q8_0
    if code := ll.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(how)):
        raise RuntimeError(f"llama_model_quantize returned {code}")
    return {}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the library prints is no answer
    ll.llama_log_set(_QUIET, None)
    ll.llama_backend_init()
    commands: dict[str, Callable[..., Any]] = {"facts": facts, "requantize": requantize}
    for line in sys.stdin:
        name, given = json.loads(line)
        if name == "load":
            worker = Worker(**given)
            commands |= {name: getattr(worker, name) for name in ("prefill", "ready", "decode", "score")}
            answer: Any = {}
        else:
            answer = commands[name](**given)
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
