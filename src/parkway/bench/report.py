"""Measured figures as a table, a sentence and a line of JSON. Knows nothing of how they were measured."""

from collections.abc import Mapping
from typing import Any

import msgspec
from rich.table import Table

from parkway.bench.figures import Figure
from parkway.bench.windows import Median

Measured = Mapping[Figure, Mapping[str, Median]]
"""Tokens per second of each figure and subject."""


def table(title: str, measured: Measured) -> Table:
    """A row for each figure, a column for each subject; in brackets how many windows were quiet."""
    about = f"{title}: tokens per second (quiet windows of all)"
    made = Table("", *next(iter(measured.values())), title=about, title_justify="left")
    for column in made.columns[1:]:
        column.justify = "right"
    for figure, medians in measured.items():
        cells = (f"{each.value:,.0f} ({each.quiet} of {each.windows})" for each in medians.values())
        made.add_row(str(figure), *cells)
    return made


def verdict(measured: Measured) -> str:
    """Says which figures come from windows in which others used the cores, and so may be too low."""
    total = sum(map(len, measured.values()))
    noisy = sum(not median.quiet for medians in measured.values() for median in medians.values())
    if not noisy:
        return "Every figure is the median of its quiet windows."
    return f"{noisy} of {total} figures had no quiet window: they are medians of disturbed ones, and may be far off."


def rows(measured: Measured) -> list[dict[str, Any]]:
    """The same for JSON."""
    return [
        {
            "figure": str(figure),
            "through": name,
            "tokens_per_second": round(each.value, 1),
            "quiet_windows": each.quiet,
            "windows": each.windows,
        }
        for figure, medians in measured.items()
        for name, each in medians.items()
    ]


def json_line(content: dict[str, Any]) -> str:
    return msgspec.json.encode(content).decode()
