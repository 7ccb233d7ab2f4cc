"""Every figure in results/ as a table, with those that fall short named; --readme puts the table into README.md too."""

import argparse
import re
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.records import RESULTS, Record, read

README = Path(__file__).parent.parent / "README.md"
_MARKED = re.compile(r"(<!-- figures -->\n).*?(<!-- /figures -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readme", action="store_true", help="write the table into README.md as well")
    arguments = parser.parse_args()
    by_machine = {path.stem: read(path) for path in sorted(RESULTS.glob("*.json"))}
    for name, records in by_machine.items():
        print_table(name, records, Console())
    print(verdict([record for records in by_machine.values() for record in records]))
    if arguments.readme:
        README.write_text(with_figures(README.read_text(), by_machine))


def print_table(name: str, records: list[Record], console: Console) -> None:
    table = Table("figure", "value", "reach", "unit", "measured", "command", title=name, title_justify="left")
    for record in records:
        cells = (record.figure, number(record.value), bound(record), record.unit, record.date, record.command)
        table.add_row(*map(Text, cells), style=None if record.reached else "bold red")
    console.print(table)


def verdict(records: list[Record]) -> str:
    if not records:
        return "No figure has been measured yet."
    short = [record.figure for record in records if not record.reached]
    if not short:
        return f"All {len(records)} figures are reached."
    return f"{len(short)} of {len(records)} figures fall short: {'; '.join(short)}."


def with_figures(text: str, by_machine: dict[str, list[Record]]) -> str:
    """The README with its marked part replaced by the tables. Raises ValueError if it isn't marked exactly once."""
    tables = "\n".join(markdown(records) for records in by_machine.values() if records)
    replaced, count = _MARKED.subn(lambda found: found[1] + tables + found[2], text)
    if count != 1:
        raise ValueError("the README must have one <!-- figures --> … <!-- /figures --> pair")
    return replaced


def markdown(records: list[Record]) -> str:
    """One machine's records as a Markdown table, with the machines on which they were measured below it."""
    lines = ["| figure | value | to reach | command |", "|---|---|---|---|"]
    for record in records:
        missed = "" if record.reached else " (falls short)"
        value = f"{number(record.value)} {record.unit}{missed}"
        lines.append(f"| {record.figure} | {value} | {bound(record)} | `{record.command}` |")
    machines = "; ".join(sorted({record.machine for record in records}))
    return "\n".join([*lines, "", f"Measured on: {machines}.", ""])


def bound(record: Record) -> str:
    return ("≥ " if record.better == "higher" else "≤ ") + number(record.reach)


def number(value: float) -> str:
    """Enough digits to compare two figures: four significant ones, six decimals at most, no exponent."""
    whole = len(str(int(abs(value))))
    if value == int(value) or whole >= 4:
        return f"{value:,.0f}"
    decimals = 4 - whole if abs(value) >= 1 else 4 if abs(value) >= 0.001 else 6
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".")


if __name__ == "__main__":
    main()
