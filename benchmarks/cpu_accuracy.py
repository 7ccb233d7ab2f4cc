"""Teacher-forced log-probabilities of a model beside those of a float64 forward pass; prints, records.

Over every position of the reference's sequences: in how many the most probable token is the same one, and the mean
absolute error of the log-probabilities of the reference's five most probable tokens. With llama.cpp's interpreter, also
what that reaches.
"""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from benchmarks import records
from benchmarks.command_line import add_llama_python, add_results
from benchmarks.llamacpp import Worker
from benchmarks.models import MODELS, add_model
from parkway.config import Activations, EngineSettings
from parkway.engine.build import build_engine
from parkway.engine.engine import Engine
from parkway.request import MAX_LOGPROBS, Request, SamplingParams

COMMAND = "python -m benchmarks.cpu_accuracy"
REFERENCES = Path(__file__).parent / "reference"
TOP = 5
SCORED = SamplingParams(
    max_tokens=1, temperature=0, ignore_eos=True, logprobs=MAX_LOGPROBS, prompt_logprobs=MAX_LOGPROBS
)
Tops = Mapping[int, Sequence[tuple[int, float]]]
"""The most probable tokens at a position, falling."""


@dataclass(frozen=True, slots=True)
class Reach:
    """`reference`: the file that says what is right."""

    reference: Path
    agreement: float
    error: Mapping[Activations, float]


REACH = {
    "smollm2": Reach(REFERENCES / "smollm2_float64_logprobs.json", 96.5, {"int8": 0.11, "f32": 0.002}),
    "gemma3": Reach(REFERENCES / "gemma3_270m_float64_logprobs.json", 99.0, {"int8": 0.085, "f32": 0.002}),
}


class Row(msgspec.Struct, frozen=True):
    """What the reference says about the token after `position`: its most probable ones, falling."""

    position: int
    top: list[tuple[int, float]]


class Forced(msgspec.Struct, frozen=True):
    """A sequence of tokens that is forced upon a model, and some of the positions in it."""

    token_ids: list[int]
    rows: list[Row]


class Reference(msgspec.Struct, frozen=True):
    sequences: list[Forced]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Over all rows. `agreement` is in percent, `error` in natural log-probability."""

    rows: int
    agreement: float
    error: float


def accuracy(path: Path, settings: EngineSettings, reference: Path) -> Accuracy:
    """Runs every sequence of a reference through an engine on the model's file."""
    sequences = sequences_of(reference)
    engine = build_engine(path, settings)
    return compared(sequences, [scored(engine, index, each.token_ids) for index, each in enumerate(sequences)])


def llama_accuracy(path: Path, python: Path, reference: Path) -> Accuracy:
    """The same of llama.cpp."""
    sequences = sequences_of(reference)
    with closing(Worker(python)) as worker:
        worker.ask("load", path=str(path), threads=2)
        found = [worker.ask("score", token_ids=each.token_ids, top=MAX_LOGPROBS)["tops"] for each in sequences]
    return compared(sequences, [dict(enumerate(tops, 1)) for tops in found])


def sequences_of(reference: Path) -> list[Forced]:
    return msgspec.json.decode(reference.read_bytes(), type=Reference).sequences


def scored(engine: Engine, index: int, token_ids: list[int]) -> Tops:
    """By the position of the tokens that may stand there; the last one is that of the answer."""
    engine.arrive(Request(id=index, prompt=token_ids, sampling=SCORED, seed=0))
    found: dict[int, list[tuple[int, float]]] = {}
    while not engine.idle:
        report = engine.step()
        for output in report.outputs if report else []:
            found |= {each.position: each.top for each in (*output.prompt_logprobs, *output.logprobs)}
    return found


def compared(sequences: Sequence[Forced], found: Sequence[Tops]) -> Accuracy:
    pairs = [
        (row, tops[row.position + 1]) for sequence, tops in zip(sequences, found, strict=True) for row in sequence.rows
    ]
    errors = [error for row, mine in pairs for error in row_errors(row, mine)]
    agreeing = sum(row.top[0][0] == mine[0][0] for row, mine in pairs)
    return Accuracy(len(pairs), 100 * agreeing / len(pairs), sum(errors) / len(errors))


def row_errors(row: Row, mine: Sequence[tuple[int, float]]) -> list[float]:
    """How far the reference's most probable tokens are off. One that is not among mine counts as my least one."""
    top = dict(mine)
    return [abs(top.get(token, mine[-1][1]) - exact) for token, exact in row.top[:TOP]]


def record(
    results: Path, figure: str, value: float, unit: str, reach: float, *, command: str, packages: tuple[str, ...] = ()
) -> None:
    records.write(
        results,
        figure=f"accuracy: {figure}",
        value=round(value, 5),
        unit=unit,
        better="higher" if unit == "%" else "lower",
        reach=reach,
        command=command,
        packages=packages,
    )


def main() -> None:
    arguments = _arguments()
    name, path = arguments.model, MODELS[arguments.model].fetch()
    reach, label, command = REACH[name], MODELS[name].label, COMMAND if name == "smollm2" else f"{COMMAND} {name}"
    measured: dict[str, Accuracy] = {}
    for activations, most in reach.error.items():
        settings = EngineSettings(device="cpu", activations=activations, ctx_size=1024)
        made = measured[activations] = accuracy(path, settings, reach.reference)
        _tell(activations, made)
        figure = f"mean error of the top {TOP} log-probabilities, {activations} activations{label}"
        record(arguments.results, figure, made.error, "nat", most, command=command)
    agreement = measured["int8"].agreement
    figure = f"argmax agreement, int8 activations{label}"
    record(arguments.results, figure, agreement, "%", reach.agreement, command=command)
    if arguments.llama_python:
        measured["llama.cpp"] = llama_accuracy(path, arguments.llama_python, reach.reference)
        _tell("llama.cpp", measured["llama.cpp"])
    print(msgspec.json.encode({key: asdict(made) for key, made in measured.items()}).decode())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_model(parser)
    add_results(parser)
    add_llama_python(parser)
    return parser.parse_args()


def _tell(who: str, made: Accuracy) -> None:
    print(f"{who}: {made.rows} rows, argmax agrees in {made.agreement:.1f} %, mean error {made.error:.5f}")


if __name__ == "__main__":
    main()
