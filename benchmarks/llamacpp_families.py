"""Families of models that llama.cpp has too, all dense ones unless some are named, as small random files of several
types: how far log-probabilities lie apart, and how fast each decodes. Prints a table; records nothing.

Both round activations to int8, each in its own way, so the distance is that of quantised arithmetic, not 0: that of F32
files shows what is left without. Where llama.cpp can't load a file, its row says so.
"""

import argparse
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.command_line import add_llama_python
from benchmarks.cpu_accuracy import Accuracy, Forced, Row, compared, scored
from benchmarks.llamacpp import BUILD, LlamaSubject, Worker
from parkway.bench.command import roomy
from parkway.bench.engine_subject import EngineSubject
from parkway.bench.figures import Effort, Figure, Subject, alternate
from parkway.config import EngineSettings
from parkway.engine.build import build_engine
from tests.checkpoints import TOKENS
from tests.models.converted import as_gguf
from tests.models.transformers_models import FAMILIES, Tiny

LARGER = {
    "vocab_size": len(TOKENS),
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "query_pre_attn_scalar": 64,
    "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 256,
}
"""Than models of the tests: matrices that every type fits, of a size at which they take the time."""
TYPES = ("F32", "Q8_0", "Q4_0", "Q4_K", "Q6_K")
SEQUENCE = [(i * 37 + i * i // 5) % len(TOKENS) for i in range(100)]
THREADS = 2
NOT_DENSE = {"num_experts", "num_local_experts", "linear_num_key_heads"}
NAMES = [
    name
    for name, family in FAMILIES.items()
    if family.in_gguf and "long_factor" not in family.said.get("rope_parameters", {})  # a list for the tests' head size
]


@dataclass(frozen=True, slots=True)
class Beside:
    """`accuracy`: with llama.cpp as the reference. `ratios`: Parkway's tokens per second over llama.cpp's."""

    accuracy: Accuracy
    ratios: list[float]


def main() -> None:
    arguments = _arguments()
    figures = [Figure("decode", streams) for streams in arguments.streams]
    cases = [(family, kind) for family in arguments.families for kind in arguments.types]
    table = Table("family", "type", "agree, %", "distance, nat", *map(str, figures))
    for family, kind in track(cases, "beside llama.cpp"):
        table.add_row(family, kind, *_cells(arguments.llama_python, family, kind, figures))
    Console().print(table)


def _cells(python: Path, family: str, kind: str, figures: Sequence[Figure]) -> list[str]:
    with TemporaryDirectory(prefix="parkway-") as folder:
        path = written(Path(folder), family, kind)
        try:
            made = beside(python, path, figures)
        except RuntimeError as error:
            return [str(error)]
    ratios = [f"{ratio:.2f} x" for ratio in made.ratios]
    return [f"{made.accuracy.agreement:.1f}", f"{made.accuracy.error:.5f}", *ratios]


def written(folder: Path, family: str, kind: str) -> Path:
    """A random model of a family as a GGUF file whose matrices have this type."""
    tiny = Tiny(replace(FAMILIES[family], said={**FAMILIES[family].said, **LARGER}))
    return as_gguf(tiny, tiny.save(folder / "saved"), folder / "model.gguf", kind)


def beside(python: Path, path: Path, figures: Sequence[Figure]) -> Beside:
    """Raises RuntimeError where llama.cpp can't load the file."""
    engine = build_engine(path, roomy(EngineSettings(device="cpu", threads=THREADS)))
    with closing(Worker(python)) as worker:
        theirs = LlamaSubject(worker, path, THREADS)
        tops = worker.ask("score", token_ids=SEQUENCE, top=len(TOKENS))["tops"]
        reference = Forced(SEQUENCE, [Row(at, top) for at, top in enumerate(tops)])
        accuracy = compared([reference], [scored(engine, 0, SEQUENCE)])
        effort = Effort(window_seconds=0.3, quiet_windows=1, most_windows=3)
        subjects: dict[str, Subject] = {"ours": EngineSubject(engine), "theirs": theirs}
        taken = [alternate(figure, subjects, effort) for figure in figures]
    return Beside(accuracy, [each["ours"].value / each["theirs"].value for each in taken])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    dense = [name for name in NAMES if not NOT_DENSE & FAMILIES[name].said.keys()]
    parser.add_argument("families", nargs="*", default=dense, metavar="FAMILY", help=", ".join(NAMES))
    parser.add_argument("--types", nargs="+", default=TYPES, metavar="TYPE", help=" ".join(TYPES))
    parser.add_argument("--streams", nargs="*", type=int, default=[1, 16], metavar="N", help="that decode (1 16)")
    add_llama_python(parser)
    arguments = parser.parse_args()
    if arguments.llama_python is None:
        parser.error(f"--llama-python or PARKWAY_LLAMA_PYTHON must name an interpreter after `{BUILD}`")
    return arguments


if __name__ == "__main__":
    main()
