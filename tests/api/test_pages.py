"""The small endpoints: /health, /metrics, /tokenize, /detokenize, /slots and the OpenAPI description."""

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from parkway import report
from parkway.api.metrics import Histogram
from parkway.report import BUCKETS, SlotView, View
from tests.api.conftest import Connect
from tests.api.fake import EOS, FakeDoor

HI = {"messages": [{"role": "user", "content": "Hi"}]}


async def test_health(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_metrics(within: Connect) -> None:
    async with within(FakeDoor("abc")) as http:
        for body in (HI, HI, HI | {"max_tokens": 2}, HI | {"stop": "b"}):
            await http.post("/v1/chat/completions", json=body)
        page = await http.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    samples = {
        (s.name, *(v for k, v in sorted(s.labels.items()) if k != "model_name")): s.value
        for family in text_string_to_metric_families(page.text)
        for s in family.samples
    }
    told = [line for line in page.text.splitlines() if line[0] != "#"]
    assert all('model_name="nick"' in line for line in told if not line.startswith(("llamacpp:", "http_requests")))
    llama = [line for line in told if line.startswith("llamacpp:") and "seconds" not in line]
    assert llama == [
        "llamacpp:prompt_tokens_total 2.0",
        "llamacpp:prompt_tokens_cache_total 3.0",
        "llamacpp:tokens_predicted_total 6.0",
        "llamacpp:n_decode_total 0.0",
        "llamacpp:prompt_cache_hit_ratio 0.6",
        "llamacpp:requests_processing 8.0",
        "llamacpp:requests_deferred 0.0",
        "llamacpp:kv_cache_usage_ratio 0.75",
        "llamacpp:kv_cache_tokens 192.0",
        "llamacpp:n_preempt_total 8.0",
        "llamacpp:n_resume_total 9.0",
        "llamacpp:preempt_recompute_total 10.0",
        "llamacpp:requests_preempted 7.0",
        "llamacpp:preempt_ram_bytes 11.0",
    ]
    assert samples["parkway:host_bytes",] == 12
    assert [samples[f"parkway:{of}_bytes",] for of in ("pool", "state", "checkpoint")] == [2, 20, 24]
    assert samples["vllm:num_requests_running",] == 1
    assert samples["vllm:num_requests_waiting",] == 2
    assert samples["vllm:kv_cache_usage_perc",] == 0.75
    assert samples["vllm:num_preemptions_total",] == 8
    assert samples["vllm:prompt_tokens_total",] == 5
    assert samples["vllm:generation_tokens_total",] == 6
    assert samples["vllm:prefix_cache_queries_total",] == 5
    assert samples["vllm:prefix_cache_hits_total",] == 3
    reasons = {reason: samples["vllm:request_success_total", reason] for reason in ("stop", "length", "abort", "error")}
    assert reasons == {"stop": 3, "length": 1, "abort": 0, "error": 0}
    assert samples["vllm:time_to_first_token_seconds_count",] == 4
    assert samples["vllm:inter_token_latency_seconds_count",] == 3 + 3 + 1 + 1
    assert samples["vllm:e2e_request_latency_seconds_bucket", "+Inf"] == 4
    assert samples["llamacpp:prompt_seconds_total",] == samples["vllm:time_to_first_token_seconds_sum",] > 0
    assert samples["llamacpp:tokens_predicted_seconds_total",] == samples["vllm:inter_token_latency_seconds_sum",] > 0
    assert samples["llamacpp:predicted_tokens_seconds",] == 6 / samples["vllm:inter_token_latency_seconds_sum",]


def test_histogram_puts_a_bound_into_its_own_bucket() -> None:
    histogram = Histogram()
    for seconds in (0.001, 0.0011, 5000.0):
        histogram.observe(seconds)
    family = HistogramMetricFamily("x", "x", labels=["m"])
    histogram.add_to(family, ["toy"])
    counts = {s.labels.get("le"): s.value for s in family.samples}
    assert (counts["0.001"], counts["0.0025"], counts["1800.0"], counts["+Inf"]) == (1, 2, 2, 3)


async def test_tokenize(within: Connect) -> None:
    async with within(FakeDoor()) as http:

        async def tokens(**body: object) -> object:
            return (await http.post("/tokenize", json=body)).json()["tokens"]

        assert await tokens(content="a<|im_end|>") == [97, EOS]
        assert await tokens(content="<|im_end|>", parse_special=False) == list(b"<|im_end|>")
        assert await tokens(content="a", add_special=True) == [97]
        assert await tokens(content="") == []
        pieces = [{"id": 97, "piece": "a"}, {"id": 0xC3, "piece": [0xC3]}, {"id": 0xA9, "piece": [0xA9]}]
        assert await tokens(content="aé", with_pieces=True) == pieces


async def test_detokenize(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.post("/detokenize", json={"tokens": [97, *"é".encode(), EOS, 0xC3]})
        assert answer.json()["content"] == "aé<|im_end|>\ufffd"
        assert (await http.post("/detokenize", json={"tokens": []})).json()["content"] == ""


async def test_slots_before_the_engine_has_told_any(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        slots = (await http.get("/slots")).json()
    assert slots == [slot_json(index) for index in range(4)]


async def test_slots_are_those_that_the_engine_told_last(within: Connect) -> None:
    states = ["idle", "prefill", "decode", "preempting", "preempted", "restoring", "replaying"]
    async with within(door := FakeDoor()) as http:
        door.view = View([SlotView(i, 70 + i, state, 3, 9, 8, 2, 5, 4) for i, state in enumerate(states) if i])
        slots = (await http.get("/slots")).json()
    busy = {"n_preempt": 5, "n_recompute": 4, "n_prompt_tokens": 3, "n_tokens": 9, "n_pages": 2, "is_processing": True}
    busy |= {"n_prompt_tokens_processed": 3}
    copying = ("preempting", "restoring")
    assert slots == [
        slot_json(i, id_task=70 + i, state=state, is_preempted=state == "preempted", is_transferring=state in copying)
        | busy
        for i, state in enumerate(states)
        if i
    ]


def slot_json(index: int, **fields: object) -> dict[str, object]:
    idle: dict[str, object] = {
        "id": index,
        "id_task": -1,
        "is_processing": False,
        "is_preempted": False,
        "is_transferring": False,
        "n_preempt": 0,
        "n_recompute": 0,
        "n_ctx": 256,
        "speculative": False,
        "n_prompt_tokens": 0,
        "n_prompt_tokens_processed": 0,
        "n_prompt_tokens_cache": 0,
        "n_tokens": 0,
        "n_pages": 0,
        "state_bytes": 5,
        "state": "idle",
    }
    return idle | fields


async def test_durations_are_those_of_the_engine_cumulated(within: Connect) -> None:
    counts = list(range(len(BUCKETS) + 1))
    told = [report.Histogram([n * factor for n in counts], factor / 2) for factor in (1, 2, 3, 4)]
    async with within(door := FakeDoor()) as http:
        door.view = View([], told[0], told[1], told[2], told[3])
        page = (await http.get("/metrics")).text
    families = {family.name: family.samples for family in text_string_to_metric_families(page)}
    for factor, name in enumerate(["park", "restore", "wait", "inter_token"], 1):
        *buckets, count, total = families[f"parkway:{name}_seconds"]
        assert [b.labels["le"] for b in buckets] == [*map(str, BUCKETS), "+Inf"]
        assert [b.value for b in buckets] == [factor * sum(counts[: i + 1]) for i in range(len(counts))]
        assert (count.value, total.value) == (factor * sum(counts), factor / 2)


async def test_openapi_describes_the_bodies(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        description = (await http.get("/openapi.json")).json()
    assert {"/v1/chat/completions", "/v1/completions", "/tokenize", "/health"} <= description["paths"].keys()
    assert "temperature" in description["components"]["schemas"]["ChatBody"]["properties"]
