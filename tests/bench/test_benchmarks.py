"""The pure parts of the measuring commands, and that they fail where they should."""

import sys
from pathlib import Path

import pytest

from benchmarks import memory, records
from benchmarks.cpu_vs_llamacpp import OURS, REACH, THEIRS, THEIRS_Q4_0, Ratio, keep, ratios
from benchmarks.llamacpp import Worker
from benchmarks.models import MODELS
from parkway.bench.figures import FIGURES, Figure
from parkway.bench.windows import Median

DECODE = Figure("decode", 4)


def measured(ours: Median, theirs: Median, theirs_q4_0: Median) -> dict[Figure, dict[str, Median]]:
    return {DECODE: {OURS: ours, THEIRS: theirs, THEIRS_Q4_0: theirs_q4_0}}


def test_a_ratio_is_quiet_if_both_sides_are() -> None:
    made = ratios(measured(Median(1000.0, 3, 5), Median(250.0, 3, 3), Median(400.0, 0, 9)), REACH["smollm2"])
    assert made == [
        Ratio(DECODE, THEIRS, 4.0, quiet=True, reach=4.0),
        Ratio(DECODE, THEIRS_Q4_0, 2.5, quiet=False, reach=3.0),
    ]


def test_only_quiet_ratios_with_a_reach_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    made = [
        Ratio(DECODE, THEIRS, 4.5678, quiet=True, reach=4.0),
        Ratio(DECODE, THEIRS_Q4_0, 2.5, quiet=False, reach=3.0),
        Ratio(Figure("prefill", 256), THEIRS, 6.0, quiet=True, reach=None),
    ]
    (left_out,) = keep(path, made, "0.3.36", "smollm2")
    assert left_out.endswith("decode, 4 streams: ratio to llama.cpp on the file requantised to Q4_0")
    (record,) = records.read(path)
    assert (record.figure, record.value, record.reach) == (
        "decode, 4 streams: ratio to llama.cpp on the same file",
        4.568,
        4.0,
    )
    assert record.versions["llama-cpp-python"] == "0.3.36"


def test_figures_of_other_models_have_names_of_their_own(tmp_path: Path) -> None:
    made = [Ratio(DECODE, THEIRS, 3.5, quiet=True, reach=3.0)]
    for model in MODELS:
        keep(tmp_path / "cpu.json", made, "0.3.36", model)
    plain, gemma = records.read(tmp_path / "cpu.json")
    assert gemma.figure == f"{plain.figure}, Gemma 3 270M"
    assert gemma.command == f"{plain.command} gemma3"


@pytest.mark.parametrize("model", MODELS)
def test_every_reach_is_of_a_figure_that_is_measured(model: str) -> None:
    assert {figure for figure, _ in REACH[model]} <= set(FIGURES)


def test_a_worker_without_llama_cpp_is_noticed(capfd: pytest.CaptureFixture[str]) -> None:
    worker = Worker(Path(sys.executable))
    with pytest.raises(RuntimeError, match=r"the llama\.cpp worker ended with exit code 1"):
        worker.ask("facts")
    worker.close()
    assert "llama_cpp" in capfd.readouterr().err


def test_memory_bound() -> None:
    assert memory.bound(100, 50) == 210 + 150 * 2**20
