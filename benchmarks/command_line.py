"""The arguments that the measuring commands share. Knows nothing of what they measure."""

import argparse
from pathlib import Path

from benchmarks.records import RESULTS
from parkway.weights import default_model


def parser(about: str | None, windows: int) -> argparse.ArgumentParser:
    """A parser with MODEL, --results and --windows, whose default is `windows`."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("model", nargs="?", type=Path, metavar="MODEL", help="GGUF file (default: the default model)")
    made.add_argument("--results", type=Path, default=RESULTS / "cpu.json", metavar="FILE", help="where records go")
    made.add_argument("--windows", type=int, default=windows, metavar="N", help=f"quiet ones to take ({windows})")
    return made


def model_of(arguments: argparse.Namespace) -> Path:
    given: Path | None = arguments.model
    return given or default_model.fetch()
