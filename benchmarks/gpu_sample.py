"""The GPU's sampler on a large vocabulary: whether it chooses as the specification does, and what it costs.

Prints where a choice differs and how near its draw was to an edge, then microseconds a step by request and rows.
"""

import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np
import numpy.typing as npt
import torch
from torch.profiler import ProfilerActivity, profile

from parkway.backends.bit_check import check
from parkway.backends.cuda.sample import ORDER, RESULT, Sampler
from parkway.backends.cuda.sample_subjects import subjects
from parkway.backends.reference_sampler import Counters, candidates, choose, log_softmax, most_probable, uniform
from parkway.request import SamplingParams

COMMAND = "python -m benchmarks.gpu_sample"
VOCABULARY = 151_936
ROWS = (1, 16, 64)
COMPARED = 32
"""Rows that are compared; NumPy takes 20 ms for one."""
LAUNCHES = 20
TOPS = 20

KINDS: dict[str, tuple[SamplingParams, int]] = {
    "greedy": (SamplingParams(temperature=0), -1),
    "greedy, logprobs 20": (SamplingParams(temperature=0), TOPS),
    "temperature": (SamplingParams(), -1),
    "top_p": (SamplingParams(top_p=0.95), -1),
    "top_k + top_p + min_p": (SamplingParams(temperature=0.7, top_k=40, top_p=0.95, min_p=0.05), -1),
    "the same, logprobs 20": (SamplingParams(temperature=0.7, top_k=40, top_p=0.95, min_p=0.05), TOPS),
}
"""Requests, and log-probabilities that they ask for."""

Logits = npt.NDArray[np.float32]


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs a GPU.")
    device = torch.device("cuda")
    started = perf_counter()
    verdict = check(subjects(device, 0), torch.equal)
    print(f"Bit check: {verdict}, {perf_counter() - started:.2f} s with compilation.")
    shapes = {"a model's": _model_like(max(ROWS)), "flat": _flat(max(ROWS))}
    for name, logits in shapes.items():
        _compare(name, logits[:COMPARED], device)
    timed = {name: torch.from_numpy(logits).to(device) for name, logits in shapes.items()}
    rows = [row for name, logits in timed.items() for row in _table(name, logits)]
    _profile(timed["a model's"])
    print(f"\nMicroseconds a step, {VOCABULARY:,} columns, {torch.cuda.get_device_name()}")
    print(f"{'logits':<11}{'request':<24}" + "".join(f"{f'{count} rows':>9}" for count in ROWS))
    print("\n".join(rows))


def _model_like(rows: int) -> Logits:
    """Logits as models give them: a bulk far below a few that stand out, by row more or less."""
    chance = np.random.default_rng(5)
    logits = chance.standard_normal((rows, VOCABULARY), np.float32) * np.float32(2.5)
    for row in range(rows):
        best = chance.integers(0, VOCABULARY, 30)
        logits[row, best] += np.linspace(18, 8, 30, dtype=np.float32) * np.float32(0.6 + row % 8 / 10)
    return logits


def _flat(rows: int) -> Logits:
    return np.random.default_rng(6).standard_normal((rows, VOCABULARY), np.float32) * np.float32(1.3)


def _orders(how: SamplingParams, top: int, rows: int) -> npt.NDArray[np.void]:
    orders = np.zeros(rows, ORDER)
    orders["temperature"], orders["top_k"] = how.temperature, how.top_k
    orders["top_p"], orders["min_p"] = how.top_p, how.min_p
    orders["target"], orders["top"], orders["slot"] = -1, top, np.arange(rows)
    orders["seed_low"], orders["position"] = 17, np.arange(rows) * 31
    return orders


def _sampling(
    logits: torch.Tensor, how: SamplingParams, top: int, rows: int, *, pdl: int
) -> tuple[Callable[[], None], torch.Tensor]:
    """A step's sampling of the first rows, and where its results will be."""
    device = logits.device
    orders = torch.from_numpy(_orders(how, top, rows).view(np.int32).reshape(rows, -1)).to(device)
    results = torch.zeros((rows, RESULT.itemsize // 4), dtype=torch.int32, device=device)
    last_tokens = torch.zeros(rows, dtype=torch.int32, device=device)
    sampler = Sampler(VOCABULARY, rows, device)
    return lambda: sampler.run(logits, orders, last_tokens, results, rows, pdl), results


def _compare(name: str, logits: Logits, device: torch.device) -> None:
    """Prints how many rows' tokens, and most probable tokens, differ from the specification's."""
    on_device = torch.from_numpy(logits).to(device)
    for kind, (how, top) in KINDS.items():
        run, results = _sampling(on_device, how, top, len(logits), pdl=False)
        run()
        made = results.cpu().numpy().view(RESULT)[:, 0]
        differing = worst = 0.0
        for row, result in enumerate(made):
            exact, counters = logits[row].astype(np.float64), Counters(17, position=row * 31)
            if result["token"] != choose(exact, how, counters):
                differing += 1
                distance = _from_edge(exact, how, counters)
                print(f"  {name} logits, {kind}, row {row}: the draw is {distance:.1e} from an edge")
            if top > 0:
                logprobs = log_softmax(exact)
                assert result["top_ids"].tolist() == most_probable(exact, top), f"{kind}, row {row}: other top tokens"
                worst = max(worst, float(np.abs(result["top_logprobs"] - logprobs[result["top_ids"]]).max()))
        print(f"{name} logits, {kind}: {differing:.0f} of {len(made)} tokens differ; log-probabilities by {worst:.1e}")


def _from_edge(logits: npt.NDArray[np.float64], how: SamplingParams, counters: Counters) -> float:
    """How far a draw is from the nearest boundary between two candidates, as a share of all."""
    kept = candidates(logits, how)
    mass = np.cumsum(np.exp((logits - logits.max()) / how.temperature)[kept])
    return float(np.abs(mass / mass[-1] - uniform(counters)).min())


def _table(name: str, logits: torch.Tensor) -> list[str]:
    rows = []
    for kind, (how, top) in KINDS.items():
        times = [_microseconds(_sampling(logits, how, top, count, pdl=True)[0]) for count in ROWS]
        rows.append(f"{name:<11}{kind:<24}" + "".join(f"{each:>9.1f}" for each in times))
    return rows


def _microseconds(run: Callable[[], None]) -> float:
    """One run's time in a captured graph of some, the least of five."""
    run()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(LAUNCHES):
            run()
    times: list[float] = []
    for _ in range(6):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / LAUNCHES)
    return min(times[1:])


def _profile(logits: torch.Tensor) -> None:
    """Prints each kernel's own time."""
    print("\nMicroseconds of each kernel alone, a model's logits")
    for kind, (how, top) in KINDS.items():
        for count in (ROWS[0], ROWS[-1]):
            run, _ = _sampling(logits, how, top, count, pdl=False)
            run()
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                for _ in range(10):
                    run()
                torch.cuda.synchronize()
            kernels = [(each.key, each.self_device_time_total / each.count) for each in seen.key_averages()]
            told = ", ".join(f"{key} {time:.1f}" for key, time in kernels if key.endswith("_kernel"))
            print(f"  {kind}, {count} rows: {told}")


if __name__ == "__main__":
    main()
