"""The GPU's figures of mixtures of experts and hybrids, into h200.json: decode, prefill and crowds of random weights.

Decode and prefill are measured as in `h200`; a crowd is chats that outgrow the pool, all of which must finish.
"""

import argparse
import gc
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter

import torch

from benchmarks import h200
from benchmarks.h200 import ANSWER, PROMPT, Offline, settings
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.engine.engine import Engine
from parkway.request import Request, SamplingParams
from parkway.runner.load import Model, load_model

COMMAND = "python -m benchmarks.h200_families"
MIXTURE = "qwen3-30b-a3b"
DECODE = {1: 300.0, 4: 750.0, 16: 1600.0, 64: 3800.0}
PREFILL = {(1, 4096): 48_000.0, (16, 1024): 60_000.0}
HYBRIDS = {"qwen3.5-4b": (1000.0, 400.0), "qwen3.6-35b-a3b": (500.0, 200.0)}
"""Tokens a second to reach: of four chats together, and of one alone."""
CHATS, QUESTION, REPLY, POOL = 4, 937, 2048, 8192
WARMING = 64
"""Tokens of the answers before those that are measured: kernels are picked and graphs captured meanwhile."""
SMALLER, DENSE = "qwen3.5-4b", "qwen3-4b"
"""A hybrid and a dense model of the same size."""
RECIPE = "Q4_K_M"


record = partial(h200.record, command=COMMAND)


@lru_cache(maxsize=1)
def loaded(name: str) -> Model:
    started = perf_counter()
    model = load_model(Path(f"shape:{name}"), settings("exact"))
    print(
        f"{name}: loaded in {perf_counter() - started:.1f} s, {model.weight_bytes / 2**30:.1f} GiB of weights",
        flush=True,
    )
    return model


def mixture() -> None:
    """Decode and prefill of a mixture of experts in bf16."""
    name = f"{MIXTURE}:BF16"
    ours = Offline(make_engine(loaded(name), settings("exact")))
    for streams, reach in DECODE.items():
        record(f"{MIXTURE}, bf16: decode, {streams} streams", ours.decode(streams), "tok/s", reach)
    for (prompts, tokens), reach in PREFILL.items():
        record(f"{MIXTURE}, bf16: prefill, {prompts} x {tokens}", ours.prefill(prompts, tokens), "tok/s", reach)


def hybrid(name: str) -> None:
    """Four chats that outgrow the pool, and one alone."""
    crowd, alone = HYBRIDS[name]
    engine = make_engine(loaded(f"{name}:{RECIPE}"), EngineSettings(device="cuda", ctx_size=POOL, parallel=CHATS))
    figure = f"{name}, {RECIPE}: {CHATS} chats of {QUESTION} + {REPLY} in a pool of {POOL}"
    together(engine, WARMING)
    record(figure, together(engine, REPLY), "tok/s", crowd)
    record(f"{name}, {RECIPE}: decode, 1 stream", Offline(engine).decode(1), "tok/s", alone)


def prefill() -> None:
    """A hybrid's over that of a dense model of its size."""
    speeds = []
    for name in (SMALLER, DENSE):
        free()
        speeds.append(Offline(make_engine(loaded(f"{name}:{RECIPE}"), settings("exact"))).prefill(4, 1024))
        print(f"{name}: prefill, 4 x 1024: {speeds[-1]:,.0f} tok/s", flush=True)
    record(f"{SMALLER} over {DENSE}, {RECIPE}: prefill, 4 x 1024", speeds[0] / speeds[1], "times", 0.5)


def together(engine: Engine, reply: int) -> float:
    """Tokens a second of all answers, from the arrival of all to the last token. Prompts differ where replies do."""
    how = SamplingParams(max_tokens=reply, temperature=0.0, ignore_eos=True)
    finished = tokens = 0
    started = perf_counter()
    for chat in range(CHATS):
        prompt = [(chat * 7919 + reply + at * 31) % engine.facts.vocab_size for at in range(QUESTION)]
        engine.arrive(Request(id=reply * CHATS + chat, prompt=prompt, sampling=how, seed=chat))
    while not engine.idle:
        report = engine.step()
        for output in report.outputs if report else ():
            tokens += len(output.token_ids)
            finished += output.finish_reason == "length"
    seconds = perf_counter() - started
    print(f"{finished} of {CHATS} chats finished, {tokens} tokens in {seconds:.1f} s")
    if finished < CHATS:
        raise RuntimeError(f"only {finished} of {CHATS} chats finished")
    return tokens / seconds


def main() -> None:
    hybrids = {name: partial(hybrid, name) for name in HYBRIDS}
    parts: dict[str, Callable[[], None]] = {"mixture": mixture, **hybrids, "prefill": prefill}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=list(parts), help="what to measure; all if nothing is named")
    for part in parser.parse_args().parts or parts:
        free()
        parts[part]()


def free() -> None:
    gc.collect()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    print(f"prompts of {PROMPT}, answers of {ANSWER} tokens where nothing else is said")
    main()
