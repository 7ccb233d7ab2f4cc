"""`parkway bench` from a model file to its JSON line, engine, server and all, on a tiny model."""

import json
from pathlib import Path

import pytest

from parkway.bench.command import roomy, run
from parkway.bench.figures import FIGURES, Effort
from parkway.config import EngineSettings
from tests.checkpoints import tiny_llama


def test_every_figure_is_measured_through_engine_and_http(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    effort = Effort(window_seconds=0.02, quiet_windows=1, most_windows=2)
    assert run(tiny_llama(tmp_path / "tiny.gguf"), EngineSettings(threads=1), effort) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(told) == {"machine", "versions", "isa", "fingerprint", "model", "settings", "figures"}
    assert [(each["figure"], each["through"]) for each in told["figures"]] == [
        (str(figure), name) for figure in FIGURES for name in ("engine", "HTTP")
    ]
    # Streams of a model this small may be over before a window through HTTP opens.
    assert all(each["tokens_per_second"] > 0 for each in told["figures"] if each["through"] == "engine")
    assert told["settings"]["parallel"] == 16


def test_there_is_room_for_sixteen_streams_and_more_is_kept() -> None:
    assert roomy(EngineSettings(ctx_size=64, parallel=1, batch_size=1)) == EngineSettings(
        ctx_size=6144, parallel=16, batch_size=16
    )
    large = EngineSettings(ctx_size=16384, parallel=32, batch_size=512)
    assert roomy(large) == large
