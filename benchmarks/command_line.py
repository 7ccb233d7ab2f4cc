"""The arguments that the measuring commands share. Knows nothing of what they measure."""

import argparse
import os
from pathlib import Path

from benchmarks.records import RESULTS
from parkway.weights import default_model


def parser(about: str | None, windows: int) -> argparse.ArgumentParser:
    """A parser with MODEL, --results and --windows, whose default is `windows`."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("model", nargs="?", type=Path, metavar="MODEL", help="GGUF file (default: the default model)")
    add_results(made)
    add_windows(made, windows)
    return made


def add_results(made: argparse.ArgumentParser) -> None:
    made.add_argument("--results", type=Path, default=RESULTS / "cpu.json", metavar="FILE", help="where records go")


def add_windows(made: argparse.ArgumentParser, windows: int) -> None:
    made.add_argument("--windows", type=int, default=windows, metavar="N", help=f"quiet ones to take ({windows})")


def add_llama_python(made: argparse.ArgumentParser) -> None:
    python = os.environ.get("PARKWAY_LLAMA_PYTHON")
    made.add_argument(
        "--llama-python",
        type=Path,
        default=python and Path(python),
        metavar="PATH",
        help="interpreter that has llama_cpp; else PARKWAY_LLAMA_PYTHON",
    )


def model_of(arguments: argparse.Namespace) -> Path:
    given: Path | None = arguments.model
    return given or default_model.fetch()
