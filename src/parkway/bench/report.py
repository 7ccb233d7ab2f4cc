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
    """A row for each figure; for each subject tokens per second and how many windows were quiet."""
    made = Table("tokens per second", title=title, title_justify="left")
    for name in next(iter(measured.values())):
        made.add_column(name, justify="right")
        made.add_column("quiet windows", justify="right", style="dim")
    for figure, medians in measured.items():
        cells = [(f"{each.value:,.0f}", f"{each.quiet} of {each.windows}") for each in medians.values()]
        made.add_row(str(figure), *(cell for pair in cells for cell in pair))
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
