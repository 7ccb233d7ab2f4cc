"""Parkway beside llama.cpp on a real model's file, in alternating windows of one run; prints and records the ratios.

llama.cpp runs under an interpreter of its own, which has llama-cpp-python built for this machine's processor:
CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary llama-cpp-python llama-cpp-python

Its kernels for AMX end with a fault (0.3.36, prompts of 256 tokens). On a processor that has AMX build it for all else:
CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_AVX_VNNI=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
-DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON"
"""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import records
from benchmarks.command_line import add_llama_python, add_results, add_windows
from benchmarks.llamacpp import BUILD, LlamaSubject, llama_subject, llama_subject_q4_0
from benchmarks.models import MODELS, add_model
from parkway.bench.command import measure, roomy
from parkway.bench.engine_subject import EngineSubject
from parkway.bench.figures import Effort, Figure
from parkway.bench.report import Measured, json_line, rows, table, verdict
from parkway.config import EngineSettings
from parkway.engine.build import build_engine
from parkway.machine import machine, versions

COMMAND = "python -m benchmarks.cpu_vs_llamacpp"
OURS, THEIRS, THEIRS_Q4_0 = "Parkway", "llama.cpp", "llama.cpp, Q4_0"
_BESIDE = {THEIRS: "llama.cpp on the same file", THEIRS_Q4_0: "llama.cpp on the file requantised to Q4_0"}
Reach = Mapping[tuple[Figure, str], float]
REACH: dict[str, Reach] = {
    "smollm2": {
        (Figure("decode", 1), THEIRS): 2.0,
        (Figure("decode", 4), THEIRS): 4.0,
        (Figure("decode", 16), THEIRS): 4.5,
        (Figure("prefill", 512), THEIRS): 5.0,
        (Figure("decode", 1), THEIRS_Q4_0): 1.6,
        (Figure("decode", 4), THEIRS_Q4_0): 3.0,
        (Figure("decode", 16), THEIRS_Q4_0): 2.2,
        (Figure("prefill", 512), THEIRS_Q4_0): 2.0,
    },
    "gemma3": {
        (Figure("decode", 1), THEIRS): 1.3,
        (Figure("decode", 4), THEIRS): 3.0,
        (Figure("decode", 16), THEIRS): 4.0,
        (Figure("prefill", 512), THEIRS): 3.0,
    },
}
"""By the model. What has no reach beside llama.cpp on the file requantised to Q4_0 is not measured there."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Parkway's tokens per second divided by those of `beside`; `quiet` if both are medians of quiet windows."""

    figure: Figure
    beside: str
    value: float
    quiet: bool
    reach: float | None


def main() -> None:
    arguments = _arguments()
    settings = roomy(EngineSettings(device="cpu", threads=arguments.threads))
    path, reach = MODELS[arguments.model].fetch(), REACH[arguments.model]
    ours = EngineSubject(build_engine(path, settings))
    with llama_subjects(arguments.llama_python, path, arguments.threads, reach) as (theirs, version):
        effort = Effort(quiet_windows=arguments.windows, most_windows=5 * arguments.windows)
        measured = measure({OURS: ours, **theirs}, effort)
    made = ratios(measured, reach)
    console = Console()
    console.print(table(path.name, measured), ratio_table(made))
    print(verdict(measured))
    print("\n".join(keep(arguments.results, made, version, arguments.model)))
    about = {"machine": machine(), "versions": versions() | {"llama-cpp-python": version}, "threads": arguments.threads}
    print(json_line(about | {"model": path.name, "figures": rows(measured), "ratios": ratio_rows(made)}))


@contextmanager
def llama_subjects(
    python: Path, path: Path, threads: int, reach: Reach
) -> Iterator[tuple[dict[str, LlamaSubject], str]]:
    """llama.cpp on the files beside which something is to be reached, and the binding's version."""
    with ExitStack() as stack:
        as_it_is, version = stack.enter_context(llama_subject(python, path, threads))
        made = {THEIRS: as_it_is}
        if any(beside == THEIRS_Q4_0 for _, beside in reach):
            made[THEIRS_Q4_0] = stack.enter_context(llama_subject_q4_0(python, path, threads))
        yield made, version


def _arguments() -> Any:
    made = argparse.ArgumentParser(description=__doc__)
    add_model(made)
    add_results(made)
    add_windows(made, 9)
    add_llama_python(made)
    made.add_argument("--threads", type=int, default=2, metavar="N", help="of each side (2)")
    arguments = made.parse_args()
    if arguments.llama_python is None:
        made.error(f"--llama-python or PARKWAY_LLAMA_PYTHON must name an interpreter after `{BUILD}`")
    return arguments


def ratios(measured: Measured, reach: Reach) -> list[Ratio]:
    return [
        Ratio(
            figure,
            beside,
            value=each[OURS].value / theirs.value,
            quiet=bool(each[OURS].quiet and theirs.quiet),
            reach=reach.get((figure, beside)),
        )
        for figure, each in measured.items()
        for beside, theirs in each.items()
        if beside != OURS
    ]


def ratio_table(made: list[Ratio]) -> Table:
    shown = Table("ratio", "beside", "value", "to reach")
    for ratio in made:
        short = ratio.reach is not None and ratio.value < ratio.reach
        reach = "" if ratio.reach is None else f"≥ {ratio.reach}"
        shown.add_row(str(ratio.figure), ratio.beside, f"{ratio.value:.2f}", reach, style="bold red" if short else None)
    return shown


def ratio_rows(made: list[Ratio]) -> list[dict[str, Any]]:
    return [
        {"figure": str(each.figure), "beside": each.beside, "ratio": round(each.value, 3), "reach": each.reach}
        for each in made
    ]


def keep(results: Path, made: list[Ratio], version: str, model: str) -> list[str]:
    """Records the ratios that have a reach and come from quiet windows; returns a sentence for each other."""
    left_out = []
    for ratio in made:
        if ratio.reach is None:
            continue
        figure = f"{ratio.figure}: ratio to {_BESIDE[ratio.beside]}{MODELS[model].label}"
        if not ratio.quiet:
            left_out.append(f"Not recorded, no window was quiet: {figure}")
            continue
        records.write(
            results,
            figure=figure,
            value=round(ratio.value, 3),
            unit="times",
            better="higher",
            reach=ratio.reach,
            command=COMMAND if model == "smollm2" else f"{COMMAND} {model}",
            other_versions={"llama-cpp-python": version},
        )
    return left_out


if __name__ == "__main__":
    main()
