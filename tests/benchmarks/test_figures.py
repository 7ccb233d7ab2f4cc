"""The tables made from the records."""

import io

import pytest
from rich.console import Console

from benchmarks import figures
from benchmarks.records import Record


def record(figure: str, value: float, reach: float = 2.0) -> Record:
    return Record(
        figure=figure,
        value=value,
        unit="x",
        better="higher",
        reach=reach,
        command="run [it]",
        machine="a machine",
        versions={},
        date="2025-01-02",
    )


REACHED, SHORT = record("decode", 2.5), record("prefill", 1.5)


def test_verdict_names_what_falls_short() -> None:
    assert figures.verdict([]) == "No figure has been measured yet."
    assert figures.verdict([REACHED]) == "All 1 figures are reached."
    assert figures.verdict([REACHED, SHORT]) == "1 of 2 figures fall short: prefill."


def test_the_printed_table_has_a_row_for_every_figure() -> None:
    console = Console(file=io.StringIO(), width=120)
    figures.print_table("cpu", [REACHED, SHORT], console)
    assert isinstance(console.file, io.StringIO)
    rows = [line.replace("│", " ").split() for line in console.file.getvalue().splitlines()]
    assert ["decode", "2.5", "≥", "2", "x", "2025-01-02", "run", "[it]"] in rows
    assert ["prefill", "1.5", "≥", "2", "x", "2025-01-02", "run", "[it]"] in rows


def test_the_readme_part_is_replaced_and_the_rest_kept() -> None:
    text = "before\n<!-- figures -->\nold\n<!-- /figures -->\nafter\n"
    once = figures.with_figures(text, {"cpu": [REACHED, SHORT]})
    assert once == (
        "before\n<!-- figures -->\n"
        "| figure | value | to reach | command |\n|---|---|---|---|\n"
        "| decode | 2.5 x | ≥ 2 | `run [it]` |\n"
        "| prefill | 1.5 x (falls short) | ≥ 2 | `run [it]` |\n"
        "\nMeasured on: a machine.\n"
        "<!-- /figures -->\nafter\n"
    )
    assert figures.with_figures(once, {"cpu": [REACHED, SHORT]}) == once


def test_a_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="figures"):
        figures.with_figures("nothing here", {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0, "2"),
        (2.345678, "2.346"),
        (0.1049, "0.1049"),
        (96.88, "96.88"),
        (1374.4, "1,374"),
        (0.0, "0"),
        (-3.5, "-3.5"),
    ],
)
def test_numbers_have_four_digits(value: float, text: str) -> None:
    assert figures.number(value) == text
