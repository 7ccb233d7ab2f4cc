"""The real models that figures are of: where the file comes from, and how a figure's name tells which it is."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import gemma
from parkway.weights import default_model


@dataclass(frozen=True, slots=True)
class Model:
    """`label`: behind a figure's name; the default model has none."""

    fetch: Callable[[], Path]
    label: str


MODELS = {"smollm2": Model(default_model.fetch, ""), "gemma3": Model(gemma.fetch, ", Gemma 3 270M")}


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", choices=MODELS, default="smollm2", help="which one (smollm2)")
