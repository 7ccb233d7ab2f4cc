"""What the load compares: the counts of a server's own page with those of its clients."""

from collections import Counter
from collections.abc import Callable

import pytest

from benchmarks.load import Counts, Tally, differences, growth, left_behind
from parkway.api.metrics import Metrics
from parkway.report import Facts, Snapshot, View

FACTS = Facts(model="toy", n_ctx=64, slots=1, vocab_size=8, fingerprint="", weight_bytes=0, pool_bytes=0)

CHAT = "/v1/chat/completions"


def page(snapshot: Snapshot, *acts: Callable[[Metrics], None]) -> Counts:
    """Of a server with three chats, two answered and one left, unless `acts` say otherwise."""
    metrics = Metrics("toy", lambda: snapshot, View, lambda: FACTS)
    metrics.finished.update(length=2, abort=1)
    for _ in range(3):
        metrics.count_request(CHAT, "POST", 200)
    for act in acts:
        act(metrics)
    return Counts(metrics.page().decode())


def tally() -> Tally:
    return Tally(sent=Counter({CHAT: 3}), ended=Counter(answered=2, left=1), tokens=20)


TOLD = Snapshot(answer_tokens=20)


def test_counts_that_agree() -> None:
    assert differences(tally(), page(TOLD)) == []


def test_who_left_at_the_last_moment_has_been_answered() -> None:
    assert differences(tally(), page(TOLD, lambda metrics: metrics.finished.update(length=1, abort=-1))) == []


@pytest.mark.parametrize(
    ("snapshot", "act", "sentence"),
    [
        (TOLD, lambda metrics: metrics.count_request(CHAT, "POST", 200), f"{CHAT}: 3 requests were sent, 4 counted"),
        (TOLD, lambda metrics: metrics.finished.update(length=-1, abort=1), "2 answers came, 1 counted"),
        (TOLD, lambda metrics: metrics.finished.update(error=1), "3 answers were begun, these ended"),
        (Snapshot(answer_tokens=19), lambda metrics: None, "20 tokens came, 19 counted"),
    ],
)
def test_counts_that_differ(snapshot: Snapshot, act: Callable[[Metrics], None], sentence: str) -> None:
    (found,) = differences(tally(), page(snapshot, act))
    assert found.startswith(sentence)


def test_what_is_left_behind() -> None:
    assert left_behind(page(TOLD)) == 0
    for snapshot in (Snapshot(running=1), Snapshot(waiting=1), Snapshot(pages_used=1, pages_total=4)):
        assert left_behind(page(snapshot)) > 0
    assert left_behind(page(Snapshot(parked=1, parked_bytes=4096))) > 4096
    assert left_behind(page(Snapshot(host_bytes=4096))) == 4096, "slabs that nobody uses"


def test_memory_that_fills_up_at_first_does_not_grow() -> None:
    assert growth([1, 5, 9, 10, 10, 10, 9, 10, 3]) == 1
    assert growth([1, 5, 9, 10, 10, 11, 12, 13, 3]) == 1.3
