"""The /metrics page: vLLM's names, llama-server's for parks, our own for how long they take.

Gauges and counters come out of the door's snapshot, durations of parks out of its view; latencies are counted here.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from parkway import request
from parkway.request import BUCKETS, Snapshot, View

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Histogram:
    """Counts of seconds per bucket. The client library's takes locks, several microseconds for each token."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self._sum += seconds

    def add_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        family.add_metric(labels, _cumulated(_SECONDS, self._counts), self._sum)


def _cumulated(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    return list(zip((*map(str, bounds), "+Inf"), accumulate(counts), strict=True))


class Metrics(Collector):
    """`finished` counts answers by reason: stop, length, abort (the client went away) and error."""

    def __init__(self, model_name: str, snapshot: Callable[[], Snapshot], view: Callable[[], View]) -> None:
        self._labels = [model_name]
        self._snapshot = snapshot
        self._view = view
        self.finished: Counter[str] = Counter()
        self.first_token = Histogram()
        self.inter_token = Histogram()
        self.whole = Histogram()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def page(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        snapshot, view = self._snapshot(), self._view()
        yield from self._serving(snapshot)
        yield from _parks(snapshot)
        yield self._host_bytes(snapshot.host_bytes)
        yield self._duration("park_seconds", "From the decision until a park's copy has landed.", view.park)
        yield self._duration("restore_seconds", "From the decision until a restore's copy has landed.", view.restore)
        yield self._duration("wait_seconds", "From preempted to resumed.", view.wait)
        yield self._duration("inter_token_seconds", "Between tokens of a chat that was not out.", view.gap)

    def _serving(self, snapshot: Snapshot) -> Iterable[Metric]:
        usage = snapshot.pages_used / snapshot.pages_total if snapshot.pages_total else 0.0
        yield self._gauge("num_requests_running", "Requests that compute.", snapshot.running)
        yield self._gauge("num_requests_waiting", "Requests that wait for a slot.", snapshot.waiting)
        yield self._gauge("kv_cache_usage_perc", "Part of the KV pool in use, 0 to 1.", usage)
        yield self._counter("num_preemptions", "Times a request was parked.", snapshot.parks)
        yield self._counter("prompt_tokens", "Prompt tokens, computed or found.", snapshot.prompt_tokens)
        yield self._counter("prefix_cache_queries", "Prompt tokens looked for.", snapshot.prompt_tokens)
        yield self._counter("prefix_cache_hits", "Prompt tokens found, not computed.", snapshot.cached_tokens)
        yield self._counter("generation_tokens", "Tokens generated.", snapshot.answer_tokens)
        yield self._successes()
        yield self._histogram("time_to_first_token_seconds", "Arrival to first token.", self.first_token)
        yield self._histogram("inter_token_latency_seconds", "Between tokens of one answer.", self.inter_token)
        yield self._histogram("e2e_request_latency_seconds", "Arrival to last token.", self.whole)

    def _gauge(self, name: str, about: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", about, labels=["model_name"])
        family.add_metric(self._labels, value)
        return family

    def _counter(self, name: str, about: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", about, labels=["model_name"])
        family.add_metric(self._labels, value)
        return family

    def _successes(self) -> Metric:
        family = CounterMetricFamily(
            "vllm:request_success", "Answers that ended.", labels=["model_name", "finished_reason"]
        )
        for reason in ("stop", "length", "abort", "error"):
            family.add_metric([*self._labels, reason], self.finished[reason])
        return family

    def _histogram(self, name: str, about: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(f"vllm:{name}", about, labels=["model_name"])
        histogram.add_to(family, self._labels)
        return family

    def _duration(self, name: str, about: str, told: request.Histogram) -> Metric:
        family = HistogramMetricFamily(f"parkway:{name}", about, labels=["model_name"])
        family.add_metric(self._labels, _cumulated(BUCKETS, told.counts), told.seconds)
        return family

    def _host_bytes(self, held: int) -> Metric:
        family = GaugeMetricFamily(
            "parkway:host_bytes", "Memory held for parked requests, used or idle.", labels=["model_name"]
        )
        family.add_metric(self._labels, held)
        return family


def _parks(snapshot: Snapshot) -> Iterable[Metric]:
    """llama-server's names; like its own, they have no labels."""
    yield CounterMetricFamily("llamacpp:n_preempt", "Times a request was parked.", snapshot.parks)
    yield CounterMetricFamily("llamacpp:n_resume", "Times a parked request came back.", snapshot.resumes)
    yield CounterMetricFamily("llamacpp:preempt_recompute", "Of those, computed again.", snapshot.recomputes)
    yield GaugeMetricFamily("llamacpp:requests_preempted", "Requests that are parked now.", snapshot.parked)
    yield GaugeMetricFamily("llamacpp:preempt_ram_bytes", "Memory of parked requests.", snapshot.parked_bytes)
