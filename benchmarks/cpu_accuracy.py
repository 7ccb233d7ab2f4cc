"""Teacher-forced log-probabilities of the default model beside those of a float64 forward pass; prints, records.

Over every position of the reference's sequences: in how many the most probable token is the same one, and the mean
absolute error of the log-probabilities of the reference's five most probable tokens.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks import records
from parkway.config import Activations, EngineSettings
from parkway.engine.build import build_engine
from parkway.engine.engine import Engine
from parkway.request import MAX_LOGPROBS, Request, SamplingParams, TokenLogprob
from parkway.weights import default_model

COMMAND = "python -m benchmarks.cpu_accuracy"
REFERENCE = Path(__file__).parent / "reference" / "smollm2_float64_logprobs.json"
TOP = 5
SCORED = SamplingParams(
    max_tokens=1, temperature=0, ignore_eos=True, logprobs=MAX_LOGPROBS, prompt_logprobs=MAX_LOGPROBS
)
REACH_AGREEMENT = 96.5
REACH_ERROR: dict[Activations, float] = {"int8": 0.11, "f32": 0.002}


class Row(msgspec.Struct, frozen=True):
    """What the reference says about the token after `position`: its 20 most probable, falling."""

    position: int
    top20: list[tuple[int, float]]


class Sequence(msgspec.Struct, frozen=True):
    token_ids: list[int]
    rows: list[Row]


class Reference(msgspec.Struct, frozen=True):
    sequences: list[Sequence]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Over all rows. `agreement` is in percent, `error` in natural log-probability."""

    rows: int
    agreement: float
    error: float


def accuracy(path: Path, settings: EngineSettings) -> Accuracy:
    """Runs every sequence of the reference through an engine on the model file."""
    sequences = msgspec.json.decode(REFERENCE.read_bytes(), type=Reference).sequences
    engine = build_engine(path, settings)
    found = [scored(engine, index, sequence.token_ids) for index, sequence in enumerate(sequences)]
    pairs = [
        (row, by_position[row.position + 1])
        for sequence, by_position in zip(sequences, found, strict=True)
        for row in sequence.rows
    ]
    errors = [error for row, mine in pairs for error in row_errors(row, mine)]
    agreeing = sum(row.top20[0][0] == mine.top[0][0] for row, mine in pairs)
    return Accuracy(len(pairs), 100 * agreeing / len(pairs), sum(errors) / len(errors))


def scored(engine: Engine, index: int, token_ids: list[int]) -> dict[int, TokenLogprob]:
    """Log-probabilities by the position of the token that they are about; the last one is that of the answer."""
    engine.arrive(Request(id=index, prompt=token_ids, sampling=SCORED, seed=0))
    found: dict[int, TokenLogprob] = {}
    while not engine.idle:
        report = engine.step()
        for output in report.outputs if report else []:
            found |= {each.position: each for each in (*output.prompt_logprobs, *output.logprobs)}
    return found


def row_errors(row: Row, mine: TokenLogprob) -> list[float]:
    """How far the reference's most probable tokens are off. One that is not among mine counts as my least one."""
    top = dict(mine.top)
    return [abs(top.get(token, mine.top[-1][1]) - exact) for token, exact in row.top20[:TOP]]


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=records.RESULTS / "cpu.json", metavar="FILE")
    results: Path = parser.parse_args().results
    measured: dict[str, Accuracy] = {}
    for activations, reach in REACH_ERROR.items():
        settings = EngineSettings(device="cpu", ctx_size=1024, activations=activations)
        made = measured[activations] = accuracy(default_model.fetch(), settings)
        print(f"{activations}: {made.rows} rows, argmax agrees in {made.agreement:.1f} %, mean error {made.error:.5f}")
        record(
            results,
            f"mean error of the top {TOP} log-probabilities, {activations} activations",
            made.error,
            "nat",
            reach,
            command=COMMAND,
        )
    agreement = measured["int8"].agreement
    record(results, "argmax agreement, int8 activations", agreement, "%", REACH_AGREEMENT, command=COMMAND)
    print(msgspec.json.encode(measured).decode())


if __name__ == "__main__":
    main()
