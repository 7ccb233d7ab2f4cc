"""How figures are told: table, verdict, JSON."""

from io import StringIO

from rich.console import Console

from parkway.bench.figures import Figure
from parkway.bench.report import rows, table, verdict
from parkway.bench.windows import Median

QUIET = {
    Figure("prefill", 512): {"engine": Median(2006.4, 9, 10), "HTTP": Median(1900.0, 9, 10)},
    Figure("decode", 16): {"engine": Median(1374.0, 9, 9), "HTTP": Median(1000.0, 9, 9)},
}
NOISY = {Figure("decode", 1): {"engine": Median(318.26, 0, 45), "HTTP": Median(300.0, 3, 45)}}


def test_table() -> None:
    console = Console(width=100, record=True, file=StringIO())
    console.print(table("toy", QUIET))
    lines = [" ".join(line.replace("│", " ").split()) for line in console.export_text().splitlines()]
    assert "prefill 512 2,006 (9 of 10) 1,900 (9 of 10)" in lines
    assert "decode, 16 streams 1,374 (9 of 9) 1,000 (9 of 9)" in lines


def test_verdict_tells_of_figures_without_a_quiet_window() -> None:
    assert verdict(QUIET) == "Every figure is the median of its quiet windows."
    assert verdict(QUIET | NOISY).startswith("1 of 6 figures had no quiet window")


def test_rows() -> None:
    assert rows(NOISY)[0] == {
        "figure": "decode, 1 stream",
        "through": "engine",
        "tokens_per_second": 318.3,
        "quiet_windows": 0,
        "windows": 45,
    }
