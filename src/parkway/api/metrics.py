"""The /metrics page: vLLM's names, llama-server's beside them, our own for how long parks take and who was refused.

Gauges and counters come out of the door's snapshot, durations of parks out of its view; latencies and requests are
counted here.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from parkway import report
from parkway.plan.step import PAGE_TOKENS
from parkway.report import BUCKETS, Facts, Snapshot, View

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_REJECTIONS = {401: "key", 413: "body", 429: "queue", 503: "draining"}
"""Why a request was refused, by the status that it got."""


class Histogram:
    """Counts of seconds per bucket. The client library's takes locks, several microseconds for each token."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_SECONDS) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self.seconds += seconds

    def add_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        family.add_metric(labels, _cumulated(_SECONDS, self._counts), self.seconds)


def _cumulated(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    return list(zip((*map(str, bounds), "+Inf"), accumulate(counts), strict=True))


class Metrics(Collector):
    """`finished` counts answers by reason: stop, length, abort (the client went away) and error."""

    def __init__(
        self, model_name: str, snapshot: Callable[[], Snapshot], view: Callable[[], View], facts: Callable[[], Facts]
    ) -> None:
        self._labels = [model_name]
        self._snapshot = snapshot
        self._view = view
        self._facts = facts
        self.finished: Counter[str] = Counter()
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._rejected: Counter[str] = Counter()
        self.first_token = Histogram()
        self.inter_token = Histogram()
        self.whole = Histogram()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def count_request(self, route: str, method: str, status: int) -> None:
        """A request is over. `route`: the path as it is declared, "" where there is none."""
        self._requests[route or "none", method, f"{status // 100}xx"] += 1
        if reason := _REJECTIONS.get(status):
            self._rejected[reason] += 1

    def page(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        snapshot, view = self._snapshot(), self._view()
        yield from self._serving(snapshot)
        yield from _llama(snapshot, self.first_token.seconds, self.inter_token.seconds)
        yield from _parks(snapshot)
        yield from self._http()
        yield from self._memory(snapshot)
        yield self._duration("park_seconds", "From the decision until a park's copy has landed.", view.park)
        yield self._duration("restore_seconds", "From the decision until a restore's copy has landed.", view.restore)
        yield self._duration("wait_seconds", "From preempted to resumed.", view.wait)
        yield self._duration("inter_token_seconds", "Between tokens of a chat that was not out.", view.gap)

    def _serving(self, snapshot: Snapshot) -> Iterable[Metric]:
        usage = _ratio(snapshot.pages_used, snapshot.pages_total)
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

    def _http(self) -> Iterable[Metric]:
        """By route, as the instrumentation that vLLM uses calls it, and by reason."""
        requests = CounterMetricFamily(
            "http_requests", "Requests that are over.", labels=["handler", "method", "status"]
        )
        for labels, count in self._requests.items():
            requests.add_metric(labels, count)
        yield requests
        rejected = CounterMetricFamily(
            "parkway:rejected_requests", "Requests that were refused.", labels=["model_name", "reason"]
        )
        for reason in _REJECTIONS.values():
            rejected.add_metric([*self._labels, reason], self._rejected[reason])
        yield rejected

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

    def _duration(self, name: str, about: str, told: report.Histogram) -> Metric:
        family = HistogramMetricFamily(f"parkway:{name}", about, labels=["model_name"])
        family.add_metric(self._labels, _cumulated(BUCKETS, told.counts), told.seconds)
        return family

    def _memory(self, snapshot: Snapshot) -> Iterable[Metric]:
        facts = self._facts()
        for name, about, held in (
            ("host", "Memory held for parked requests, used or idle.", snapshot.host_bytes),
            ("pool", "The KV pool.", facts.pool_bytes),
            ("state", "States that slots keep beside pages.", facts.state_bytes),
            ("checkpoint", "Copies of states at page boundaries.", facts.checkpoint_bytes),
        ):
            family = GaugeMetricFamily(f"parkway:{name}_bytes", about, labels=["model_name"])
            family.add_metric(self._labels, held)
            yield family


def _llama(snapshot: Snapshot, prompt_seconds: float, answer_seconds: float) -> Iterable[Metric]:
    """llama-server's names; like its own, they have no labels. Seconds are summed over chats."""
    computed = snapshot.prompt_tokens - snapshot.cached_tokens
    usage = _ratio(snapshot.pages_used, snapshot.pages_total)
    for name, about, total in (
        ("prompt_tokens", "Prompt tokens computed.", computed),
        ("prompt_tokens_cache", "Prompt tokens found, not computed.", snapshot.cached_tokens),
        ("prompt_seconds", "Arrival to first token.", prompt_seconds),
        ("tokens_predicted", "Tokens generated.", snapshot.answer_tokens),
        ("tokens_predicted_seconds", "First token to last.", answer_seconds),
        ("n_decode", "Steps of the engine.", snapshot.steps),
    ):
        yield CounterMetricFamily(f"llamacpp:{name}", about, total)
    for name, about, value in (
        ("prompt_tokens_seconds", "Prompt tokens a second.", _ratio(computed, prompt_seconds)),
        ("predicted_tokens_seconds", "Tokens a second of one chat.", _ratio(snapshot.answer_tokens, answer_seconds)),
        (
            "prompt_cache_hit_ratio",
            "Part of prompt tokens found.",
            _ratio(snapshot.cached_tokens, snapshot.prompt_tokens),
        ),
        ("requests_processing", "Requests that have a slot.", snapshot.running + snapshot.parked),
        ("requests_deferred", "Requests that wait for one.", max(0, snapshot.waiting - snapshot.parked)),
        ("kv_cache_usage_ratio", "Part of the KV pool in use, 0 to 1.", usage),
        ("kv_cache_tokens", "Tokens for which the pages in use have room.", snapshot.pages_used * PAGE_TOKENS),
    ):
        yield GaugeMetricFamily(f"llamacpp:{name}", about, value)


def _ratio(amount: float, of: float) -> float:
    return amount / of if of else 0.0


def _parks(snapshot: Snapshot) -> Iterable[Metric]:
    """llama-server's names too, of the system that parked first."""
    yield CounterMetricFamily("llamacpp:n_preempt", "Times a request was parked.", snapshot.parks)
    yield CounterMetricFamily("llamacpp:n_resume", "Times a parked request came back.", snapshot.resumes)
    yield CounterMetricFamily("llamacpp:preempt_recompute", "Of those, computed again.", snapshot.recomputes)
    yield GaugeMetricFamily("llamacpp:requests_preempted", "Requests that are parked now.", snapshot.parked)
    yield GaugeMetricFamily("llamacpp:preempt_ram_bytes", "Memory of parked requests.", snapshot.parked_bytes)
