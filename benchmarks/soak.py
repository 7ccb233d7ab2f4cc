"""Hundreds of chats through a tiny pool of a real server: random lengths, shared beginnings, seeds, disconnects.

python -m benchmarks.soak [MODEL] [--device cuda] [--seconds N] [--chats N] records what was lost, what was left behind
and whether memory grew. Chats are drawn from a smaller number of kinds, so that the same question comes again: its
answers must be the same bytes.
"""

import argparse
import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx

from benchmarks import records
from benchmarks.load import Counts, page_of
from benchmarks.memory import memory_of
from parkway.bench.served import Served, command, served
from parkway.config import EngineSettings
from parkway.weights import default_model

COMMAND = "python -m benchmarks.soak"
POOL, SLOTS = 1024, 8
KINDS = 120
LEAVE_EARLY = 0.3
"""Share of the clients that go away before they have their answer."""
SETTLE_SECONDS = 5.0


@dataclass(slots=True)
class Tally:
    """What became of the chats; the answers of each kind."""

    ended: Counter[str] = field(default_factory=Counter)
    answers: dict[int, set[str]] = field(default_factory=dict)
    parks: int = 0
    memory: list[int] = field(default_factory=list)


def kind(number: int) -> dict[str, Any]:
    """A request, always the same for the same number. Half of them begin like others."""
    draw = random.Random(number)
    family = random.Random(number % 6)
    shared = [family.randrange(3, 40_000) for _ in range(draw.choice([0, 64, 200, 400]))]
    own = [draw.randrange(3, 40_000) for _ in range(draw.randint(1, 150))]
    longest = POOL - len(shared) - len(own)
    return {
        "prompt": shared + own,
        "max_tokens": min(longest, draw.choice([1, 20, 100, 300, 600])),
        "temperature": draw.choice([0.0, 0.8]),
        "seed": number,
        "ignore_eos": draw.random() < 0.5,
        "cache_prompt": draw.random() < 0.9,
        "logprobs": draw.choice([None, 0, 2]),
    }


async def chat(client: httpx.AsyncClient, draw: random.Random, tally: Tally) -> None:
    number, stream = draw.randrange(KINDS), draw.random() < 0.7
    leaves_after = draw.uniform(0.0, 3.0) if draw.random() < LEAVE_EARLY else None
    ask = whole if not stream else streamed
    try:
        text = await asyncio.wait_for(ask(client, kind(number), tally), leaves_after)
    except TimeoutError:
        tally.ended["left"] += 1
    except (httpx.HTTPError, ValueError, KeyError) as error:
        tally.ended[f"lost: {error!r}"[:80]] += 1
    else:
        tally.ended["answered"] += 1
        tally.answers.setdefault(number, set()).add(text)


async def whole(client: httpx.AsyncClient, body: dict[str, Any], tally: Tally) -> str:
    answer = (await client.post("/v1/completions", json=body)).raise_for_status().json()
    tally.parks += answer["preempt"]["parks"]
    return str(answer["choices"][0]["text"])


async def streamed(client: httpx.AsyncClient, body: dict[str, Any], tally: Tally) -> str:
    pieces, parks, finished = [], 0, False
    async with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            parks += line == ": preempted"
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                for choice in event["choices"]:
                    pieces.append(choice["text"])
                    finished = finished or choice["finish_reason"] is not None
    if not finished:
        raise ValueError("a stream ended without a finish reason")
    tally.parks += parks
    return "".join(pieces)


async def soak(server: Served, chats: int, seconds: float) -> Tally:
    """Chats arrive over so many seconds; returns when the last has ended."""
    tally, draw, started = Tally(), random.Random(0), perf_counter()
    host, port = server.address
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=None, limits=limits) as client:
        running = []
        for index in range(chats):
            await asyncio.sleep(max(0.0, started + seconds * index / chats - perf_counter()))
            running.append(asyncio.create_task(chat(client, random.Random(draw.random()), tally)))
            if index % 25 == 0:
                tally.memory.append(memory_of(server)["rss"])
        await asyncio.gather(*running)
    await asyncio.sleep(SETTLE_SECONDS)
    tally.memory.append(memory_of(server)["rss"])
    return tally


def held(told: Counts) -> dict[str, float]:
    """What a server holds for chats that are here. On a GPU it has memory for those to come too, from its start on."""
    names = ("requests_preempted", "preempt_ram_bytes")
    counted = ("vllm:kv_cache_usage_perc", *(f"llamacpp:{name}" for name in names), "parkway:host_bytes")
    return {name: told.of(name) for name in counted}


def left_behind(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What is held once everybody has gone beyond what was held before anybody came."""
    return {name: after[name] - before[name] for name in before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="default: SmolLM2 on the CPU, Qwen3-8B's shape on a GPU")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=600.0, help="over which the chats arrive (600)")
    parser.add_argument("--chats", type=int, default=500, help="how many (500)")
    parser.add_argument("--results", type=Path, metavar="FILE", help="where records go")
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    path = arguments.model or (Path("shape:qwen3-8b:BF16") if on_gpu else default_model.fetch())
    settings = EngineSettings(device=arguments.device, ctx_size=POOL, parallel=SLOTS)
    with served(command(path, settings)) as server:
        before = held(Counts(page_of(server)))
        tally = asyncio.run(soak(server, arguments.chats, arguments.seconds))
        left = left_behind(before, held(Counts(page_of(server))))
    lost = sum(count for how, count in tally.ended.items() if how not in ("answered", "left"))
    several = sum(len(answers) > 1 for answers in tally.answers.values())
    quarter = len(tally.memory) // 4
    growth = tally.memory[-1] / tally.memory[quarter]
    print(f"{dict(tally.ended)}; {tally.parks} parks; left behind: {left}; resident MiB over time:")
    print(" ".join(f"{value / 2**20:.0f}" for value in tally.memory))
    what = f"{'qwen3-8b, bf16: ' if on_gpu else ''}{arguments.chats} chats through {POOL} tokens"
    results = arguments.results or records.RESULTS / ("h200.json" if on_gpu else "cpu.json")
    rows = (
        ("chats lost or stuck", lost, "chats", 0.0),
        ("questions with more than one answer", several, "questions", 0.0),
        ("pages, parked chats and host bytes left behind", sum(left.values()), "of all", 0.0),
        ("memory at the end over a quarter of the way", growth, "times", 1.05),
    )
    for name, value, unit, reach in rows:
        made = records.write(
            results,
            figure=f"{what}: {name}",
            value=float(f"{value:.4g}"),
            unit=unit,
            better="lower",
            reach=reach,
            command=f"{COMMAND} --seconds {arguments.seconds:g}",
            packages=("torch", "triton") if on_gpu else (),
        )
        print(f"{made.figure}: {value:,.4g} (reach {reach:g}){'' if made.reached else ' SHORT'}")


if __name__ == "__main__":
    main()
