"""A server to measure: its flags, its metrics, and what is told when it doesn't come up."""

from pathlib import Path

import pytest

from parkway import cli
from parkway.bench.served import command, served, value_of
from parkway.config import EngineSettings, ServerSettings
from parkway.errors import StartError
from parkway.flags import as_flags
from parkway.report import Facts, Snapshot, View

FACTS = Facts(model="toy", n_ctx=64, slots=1, vocab_size=8, fingerprint="", weight_bytes=0, pool_bytes=0)

PAGE = """# HELP vllm:prompt_tokens_total Prompt tokens computed.
vllm:prompt_tokens_total{model_name="a b"} 1712.0
vllm:num_requests_running{model_name="a b"} 3.0
"""


def test_a_value_is_found_by_its_whole_name() -> None:
    assert value_of(PAGE, "prompt_tokens_total") == 1712.0
    assert value_of(PAGE, "num_requests_running") == 3.0
    with pytest.raises(LookupError, match="vllm:prompt_tokens"):
        value_of(PAGE, "prompt_tokens")


def test_the_metrics_that_are_read_are_the_servers() -> None:
    from parkway.api.metrics import Metrics

    snapshot = Snapshot(running=2, pages_used=1, pages_total=4, prompt_tokens=30, answer_tokens=5)
    page = Metrics("m", lambda: snapshot, View, lambda: FACTS).page().decode()
    names = ("num_requests_running", "kv_cache_usage_perc", "prompt_tokens_total", "generation_tokens_total")
    assert [value_of(page, name) for name in names] == [2.0, 0.25, 30.0, 5.0]


def test_settings_survive_as_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, server = EngineSettings(parallel=7, isa="avx2"), ServerSettings(port=0, drain_seconds=1.5)
    seen: list[object] = []

    def serve(*given: object) -> int:
        seen.extend(given)
        return 0

    monkeypatch.setattr("parkway.api.server.serve", serve)
    monkeypatch.setenv("PARKWAY_ALIAS", "the user's")
    cli.main(["serve", "m.gguf", *as_flags(engine), *as_flags(server)])
    assert seen == [Path("m.gguf"), engine, server]


def test_a_server_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    missing = tmp_path / "missing.gguf"
    with pytest.raises(StartError, match=r"^.*missing\.gguf: "), served(command(missing, EngineSettings())):
        pass
