"""What engines that came one after the other have counted together: a counter never goes down. Knows no door."""

from collections import Counter

from msgspec.structs import replace

from parkway.report import Histogram, Snapshot, View

COUNTERS = ("steps", "prompt_tokens", "answer_tokens", "cached_tokens", "parks", "resumes", "recomputes")
"""Numbers of a snapshot that only grow; `finished` has more of them."""
HISTOGRAMS = ("park", "restore", "wait", "gap")
"""Of a view."""


def snapshot_after(past: Snapshot, now: Snapshot) -> Snapshot:
    """`now`, with what was counted before it."""
    sums = {name: getattr(past, name) + getattr(now, name) for name in COUNTERS}
    return replace(now, **sums, finished=dict(Counter(past.finished) + Counter(now.finished)))


def view_after(past: View, now: View) -> View:
    """`now`, with what was measured before it."""
    return replace(now, **{name: _sum(getattr(past, name), getattr(now, name)) for name in HISTOGRAMS})


def _sum(a: Histogram, b: Histogram) -> Histogram:
    return Histogram([x + y for x, y in zip(a.counts, b.counts, strict=True)], a.seconds + b.seconds)
