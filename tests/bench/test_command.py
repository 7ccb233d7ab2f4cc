"""`parkway bench` from a model file to its JSON line, engine, server and all, on a tiny model."""

import json
from pathlib import Path

import pytest

from parkway.bench.command import about, roomy, run
from parkway.bench.figures import FIGURES, GPU_FIGURES, Effort, Figure
from parkway.config import EngineSettings
from tests.checkpoints import tiny_llama
from tests.verify.toy_gpu import ToyGpuModel


def test_every_figure_is_measured_through_engine_and_http(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    effort = Effort(window_seconds=0.02, quiet_windows=1, most_windows=2)
    assert run(tiny_llama(tmp_path / "tiny.gguf"), EngineSettings(device="cpu", threads=1), effort) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    about = {"machine", "versions", "device", "numerics", "isa", "fingerprint"}
    assert set(told) == about | {"model", "settings", "figures"}
    assert (told["device"], told["numerics"]) == ("cpu", "exact")
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


def test_on_a_gpu_there_is_room_for_more() -> None:
    assert roomy(EngineSettings(), GPU_FIGURES) == EngineSettings(ctx_size=64 * 6 * 64, parallel=64, batch_size=0)
    one_long = (GPU_FIGURES[0], Figure("prefill", 16384), Figure("decode", 1))
    assert roomy(EngineSettings(), one_long).ctx_size == 16384 + 64


def test_a_gpus_figures_tell_what_computed_them() -> None:
    told = about(ToyGpuModel(), EngineSettings(device="cuda", numerics="fast"))
    assert set(told) == {"machine", "versions", "device", "numerics", "fingerprint"}
    assert (told["device"], told["numerics"], told["fingerprint"]) == ("cuda", "fast", "fp_toy")
    assert told["versions"].keys() >= {"torch", "triton", "fastapi"}
