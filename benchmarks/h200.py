"""The GPU's figures, into h200.json: decode and prefill of an 8B shape, exact beside fast, quantised, through HTTP.

Decode is measured as vLLM's figures were: prompts of 1000 tokens, 256 new ones, greedy; streams x 255 / (time for 256
tokens - time for 1), best of 3.
"""

import argparse
import itertools
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch
from gguf import GGML_QUANT_SIZES

from benchmarks import records
from benchmarks.gpu_http import http_decode_rate
from benchmarks.gpu_idle import idle_share
from parkway.backends import bit_check
from parkway.backends.cuda.attention_subjects import Shape, need
from parkway.backends.cuda.device import Device
from parkway.config import EngineSettings, Numerics
from parkway.engine.build import make_engine
from parkway.engine.engine import Engine
from parkway.request import Request, SamplingParams
from parkway.runner.cuda_compile import subjects
from parkway.runner.cuda_load import kept_verdict
from parkway.runner.load import Model, load_model
from parkway.weights import open_checkpoint

COMMAND = "python -m benchmarks.h200"
SHAPE = "qwen3-8b"
PROMPT, ANSWER, MOST_STREAMS, BEST_OF = 1000, 256, 64, 3
ROOFLINE = 4.3e12
"""Bytes a second that a copy on the device moves, measured."""
DECODE = {1: (205.0, 190.0), 4: (800.0, 742.0), 16: (2850.0, 2723.0), 64: (7900.0, 7851.0)}
"""By streams: what to reach, and what vLLM 0.26.0's default mode does on the same kind of machine."""
PREFILL = {(1, 4096): (34_000.0, 38_733.0), (16, 1024): (36_000.0, 42_305.0)}


NEEDS = ("Q4_K", need(Shape(32, 8, 128)))
"""Of the shape's kernels, where its weights are quantised."""


class Offline:
    """An engine that is stepped in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._random = random.Random(0)
        self._ids = itertools.count()

    def seconds(self, streams: int, prompt_tokens: int, answer_tokens: int) -> float:
        """From the arrival of so many requests at once to the last token of all."""
        how = SamplingParams(max_tokens=answer_tokens, temperature=0.0, ignore_eos=True)
        vocabulary = range(self._engine.facts.vocab_size)
        prompts = [self._random.choices(vocabulary, k=prompt_tokens) for _ in range(streams)]
        started = perf_counter()
        for prompt in prompts:
            self._engine.arrive(Request(id=next(self._ids), prompt=prompt, sampling=how, seed=0))
        while not self._engine.idle:
            self._engine.step()
        return perf_counter() - started

    def decode(self, streams: int) -> float:
        """Tokens per second of all streams."""
        whole = best(lambda: self.seconds(streams, PROMPT, ANSWER))
        return streams * (ANSWER - 1) / (whole - best(lambda: self.seconds(streams, PROMPT, 1)))

    def prefill(self, prompts: int, tokens: int) -> float:
        """Prompt tokens per second."""
        return prompts * tokens / best(lambda: self.seconds(prompts, tokens, 1))


def best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(BEST_OF))


def settings(numerics: Numerics) -> EngineSettings:
    pages = -(-(PROMPT + ANSWER) // 64)
    return EngineSettings(device="cuda", ctx_size=MOST_STREAMS * pages * 64, parallel=MOST_STREAMS, numerics=numerics)


def record(
    figure: str,
    value: float,
    unit: str,
    reach: float,
    better: Literal["higher", "lower"] = "higher",
    command: str = COMMAND,
) -> None:
    made = records.write(
        records.RESULTS / "h200.json",
        figure=figure,
        value=float(f"{value:.4g}"),
        unit=unit,
        better=better,
        reach=reach,
        command=command,
        packages=("torch", "triton"),
    )
    print(f"{figure}: {value:,.4g} {unit} (reach {reach:,g}){'' if made.reached else ' SHORT'}", flush=True)


def quantised(model: Model) -> None:
    """Decode with Q4_K weights, as a share of what reading them alone would take."""
    ours = Offline(make_engine(model, settings("exact")))
    read_bytes = sum(
        math.prod(tensor.shape) // GGML_QUANT_SIZES[tensor.type][0] * GGML_QUANT_SIZES[tensor.type][1]
        for tensor in open_checkpoint(shape("Q4_K")).tensors.values()
        if tensor.name != "token_embd.weight"  # of which a step reads a row for each token
    )
    for streams in (1, 4):
        rate = ours.decode(streams)
        share = rate / streams * read_bytes / ROOFLINE
        print(f"Q4_K decode, {streams} streams: {rate:,.0f} tok/s; a step reads {read_bytes / 1e9:.2f} GB of weights")
        record(f"{SHAPE}, Q4_K: decode, {streams} streams, share of the weight roofline", share, "of 1", 0.40)


def checks() -> None:
    """How long the bit check takes once everything is compiled, and to read its verdict."""
    device = Device.found()
    for _ in range(2):  # the first compiles
        verdict = bit_check.check(subjects(device.torch, NEEDS), torch.equal)
    record("bit check at load, without compilation", verdict.seconds, "s", 10.0, better="lower")
    kept_verdict("bench", NEEDS, device)
    started = perf_counter()
    kept_verdict("bench", NEEDS, device)
    record("bit check at load, from its cache", perf_counter() - started, "s", 1.0, better="lower")


def proved(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """The last line of a run of verify. Raises RuntimeError if it has not tried everything, so its counts say less."""
    line = done.stdout.rstrip().rpartition("\n")[2]
    told: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
    if not told or told["missed"] or (done.returncode and not told["differing"]):
        raise RuntimeError(f"verify ended with {done.returncode}, not all tried: {told or 'no last line'}")
    return told


def verified() -> None:
    """`parkway verify` on the shape, as a user runs it."""
    command = [sys.executable, "-m", "parkway.cli", "verify", str(shape("BF16")), "--device", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout[-3000:], done.stderr[-2000:])
    told = proved(done)
    record(f"{SHAPE}, bf16: verify, chats whose bits differ", told["differing"], "chats", 0.0, better="lower")
    record(f"{SHAPE}, bf16: verify, full run", told["seconds"], "s", 180.0, better="lower")


def idle(model: Model) -> None:
    """How much of a single stream's decode step the device idles."""
    engine = make_engine(model, settings("exact"))
    how = SamplingParams(max_tokens=ANSWER, temperature=0.0, ignore_eos=True)
    engine.arrive(Request(id=0, prompt=list(range(PROMPT)), sampling=how, seed=0))
    for _ in range(20):
        engine.step()
    share = idle_share(engine.step)
    record(f"{SHAPE}, bf16: device idle in a decode step, 1 stream", share, "of 1", 0.05, better="lower")
    while not engine.idle:
        engine.step()


def http(vocab_size: int, offline: float) -> None:
    """Decode of the most streams through HTTP over the same offline."""
    rate = http_decode_rate(shape("BF16"), settings("exact"), vocab_size, prompt=PROMPT, answer=ANSWER)
    print(f"HTTP, {MOST_STREAMS} streams: {rate:,.0f} tok/s; offline {offline:,.0f}")
    record(f"{SHAPE}, bf16: decode, {MOST_STREAMS} streams, HTTP over offline", rate / offline, "times", 0.95)


def shape(kind: str) -> Path:
    """Random weights of the shape, made on the machine."""
    return Path(f"shape:{SHAPE}:{kind}")


def dense(model: Model) -> float:
    """Decode and prefill in bf16, exact and fast in turns. Returns the exact decode rate of the most streams."""
    ours, fast = (Offline(make_engine(model, settings(numerics))) for numerics in ("exact", "fast"))
    rate = 0.0
    for streams, (reach, peer) in DECODE.items():
        rate, other = ours.decode(streams), fast.decode(streams)
        print(f"decode, {streams} streams: exact {rate:,.0f}, fast {other:,.0f}, vLLM's default {peer:,.0f} tok/s")
        record(f"{SHAPE}, bf16: decode, {streams} streams", rate, "tok/s", reach)
        record(f"{SHAPE}, bf16: decode, {streams} streams, exact over fast", rate / other, "times", 0.97)
    for (prompts, tokens), (reach, peer) in PREFILL.items():
        speed, other = ours.prefill(prompts, tokens), fast.prefill(prompts, tokens)
        print(f"prefill, {prompts} x {tokens}: exact {speed:,.0f}, fast {other:,.0f}, vLLM's default {peer:,.0f} tok/s")
        record(f"{SHAPE}, bf16: prefill, {prompts} x {tokens}", speed, "tok/s", reach)
        record(f"{SHAPE}, bf16: prefill, {prompts} x {tokens}, exact over fast", speed / other, "times", 0.80)
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    every = ["checks", "dense", "idle", "http", "quantised", "verify"]
    parser.add_argument("parts", nargs="*", default=every, help="what to measure")
    parts = parser.parse_args().parts
    if {"dense", "idle", "http"} & set(parts):
        model = load_model(shape("BF16"), settings("exact"))
        offline = dense(model) if "dense" in parts else Offline(make_engine(model, settings("exact"))).decode(64)
        if "idle" in parts:
            idle(model)
        vocab_size = model.vocab_size
        del model
        if "http" in parts:
            http(vocab_size, offline)
    if "checks" in parts:
        checks()
    if "verify" in parts:
        verified()
    if "quantised" in parts:
        quantised(load_model(shape("Q4_K"), settings("exact")))


if __name__ == "__main__":
    main()
