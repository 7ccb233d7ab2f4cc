"""Parks through the engine: the stream's order, the record, refusals, failures, and nothing left behind."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from parkway.engine.engine import Engine
from parkway.errors import NoRoom
from parkway.plan.copies import Copy, Owner
from parkway.plan.limits import Knobs
from parkway.report import SlotView, View
from parkway.request import POOL_FULL, Output, Preempt
from tests.engine.toy import ToyCopies, ToyRunner, expected, joined, make_request, make_toy

AHEAD = pytest.mark.parametrize("ahead", [0, 1])


def crowded(ahead: int = 0, **limits: Any) -> Engine:
    """Four chats that outgrow eight pages together."""
    engine = make_toy(ToyRunner(ahead=ahead), **{"pages": 8, "host_pages": 64, **limits})
    for index in range(4):
        engine.arrive(make_request(index, 20, max_tokens=200, ignore_eos=True))
    return engine


def drained(engine: Engine) -> dict[int, list[Output]]:
    outputs: dict[int, list[Output]] = defaultdict(list)
    while not engine.idle:
        report = engine.step()
        for output in report.outputs if report else ():
            outputs[output.request_id].append(output)
    return outputs


def states(outputs: list[Output]) -> list[str]:
    """What the client of one request sees: notices by name, runs of tokens as a dot."""
    seen: list[str] = []
    for output in outputs:
        word = output.notice.state if output.notice else "." if output.token_ids else ""
        if word and seen[-1:] != [word]:
            seen.append(word)
    return seen


@AHEAD
@pytest.mark.parametrize("host_pages", [64, 0])
def test_each_park_is_told_once_and_each_return_once_before_the_next_token(ahead: int, host_pages: int) -> None:
    engine = crowded(ahead, host_pages=host_pages)
    outputs = drained(engine)
    assert engine.snapshot.parks == engine.snapshot.resumes > 0
    for index, given in outputs.items():
        seen, record = states(given), given[-1].preempt
        back = ["preempted", "resumed"] if host_pages else ["preempted", "resumed", "recomputed"]
        assert seen == ["."] + [*back, "."] * record.parks
        assert record.recomputes == (0 if host_pages else record.parks)
        request = make_request(index, 20, max_tokens=200, ignore_eos=True)
        assert joined([each for each in given if not each.notice]) == expected(request, 512)


def test_notices_say_how_long_the_chat_was_away() -> None:
    now = iter(range(10**6))
    engine = crowded()
    engine._clock = lambda: float(next(now))
    outputs = drained(engine)
    for given in outputs.values():
        waited = sum(each.notice.waited_ms for each in given if each.notice and each.notice.state == "resumed")
        assert given[-1].preempt.parked_ms == waited
        assert bool(waited) == bool(given[-1].preempt.parks)


@AHEAD
def test_a_copy_that_is_refused_becomes_a_replay_that_is_told(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ToyCopies, copy: Copy) -> None:
        if copy.to_host:
            raise NoRoom("the host is full")
        raise AssertionError("nothing is on the host")

    monkeypatch.setattr(ToyCopies, "submit", refuse)
    engine = crowded(ahead)
    outputs = drained(engine)
    assert engine.snapshot.recomputes == engine.snapshot.parks > 0
    assert any("recomputed" in states(given) for given in outputs.values())
    for index, given in outputs.items():
        request = make_request(index, 20, max_tokens=200, ignore_eos=True)
        assert joined([each for each in given if not each.notice]) == expected(request, 512)


@AHEAD
def test_without_parks_a_full_pool_ends_those_who_run_and_the_engine_lives(ahead: int) -> None:
    engine = crowded(ahead, parks=False)
    outputs = drained(engine)
    assert {given[-1].error for given in outputs.values()} == {POOL_FULL}
    assert engine.snapshot.pages_used == 0
    again = make_request(9, 20, max_tokens=200, ignore_eos=True)
    engine.arrive(again)
    assert joined(drained(engine)[9]) == expected(again, 512)


@AHEAD
def test_a_cancel_at_any_moment_leaves_nothing_behind(ahead: int) -> None:
    for moment in range(0, 400, 7):
        engine = crowded(ahead)
        for _ in range(moment):
            engine.step()
        for index in range(4):
            engine.cancel(index)
        drained(engine)
        assert engine.snapshot.pages_used == 0
        assert engine.snapshot.parked == 0
        assert not engine._planner._room.parking.host.used


def test_views_show_every_state_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = crowded(knobs=Knobs(park_every=9, forget=True))
    seen, last = set(), View()
    while not engine.idle:
        report = engine.step()
        if report and report.view:
            last = report.view
            seen |= {slot.state for slot in last.slots}
    assert seen == {"idle", "prefill", "decode", "preempting", "preempted", "restoring"}
    assert last.slots == [SlotView(index) for index in range(4)]
    assert sum(last.wait.counts) == engine.snapshot.resumes
    assert sum(last.park.counts) > 0
    assert sum(last.restore.counts) == engine.snapshot.resumes


def test_a_second_park_copies_only_what_is_new() -> None:
    engine = make_toy(host_pages=64, knobs=Knobs(park_every=70, forget=True))
    engine.arrive(make_request(0, 200, max_tokens=300, ignore_eos=True))
    copied: list[int] = []
    copies = engine._parks._copies
    submit = copies.submit

    def count(copy: Copy) -> None:
        if copy.owner is Owner.PARK:
            copied.append(len(copy.sources))
        submit(copy)

    copies.submit = count  # type: ignore[method-assign]
    drained(engine)
    assert copied[0] == 5  # 269 tokens
    assert all(pages <= 2 for pages in copied[1:])


def test_ten_thousand_parks_in_a_row() -> None:
    engine = make_toy(n_ctx=512, host_pages=16, slots=2, knobs=Knobs(park_every=1, forget=True))
    record = Preempt()
    for index in range(20):
        requests = [make_request(2 * index + i, 10, max_tokens=500, ignore_eos=True) for i in (0, 1)]
        for request in requests:
            engine.arrive(request)
        outputs = drained(engine)
        for request in requests:
            given = outputs[request.id]
            record = given[-1].preempt
            assert joined([each for each in given if not each.notice]) == expected(request, 512)
    assert record.parks > 400
    assert engine.snapshot.parks == engine.snapshot.resumes >= 10_000
    assert engine.snapshot.pages_used == 0


@pytest.mark.parametrize(("patience", "missed"), [(0.1, 1), (0.0, 2)])
def test_a_chat_whose_copies_are_short_misses_one_step(
    patience: float, missed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is busy with a step meanwhile; without patience its way back takes another."""
    monkeypatch.setattr("parkway.engine.engine.PATIENCE", patience)
    engine = make_toy(
        ToyRunner(ahead=1), pages=16, host_pages=64, knobs=Knobs(park_every=20, exempt_first=True), slots=2
    )
    engine._parks._copies.late = 0  # type: ignore[attr-defined]
    now = iter(range(10**6))
    engine._clock = lambda: float(next(now))
    for index in range(2):
        engine.arrive(make_request(index, 20, max_tokens=50, ignore_eos=True))
    told = in_order(engine)
    at = [place for place, output in enumerate(told) if output.notice]
    assert [told[place].notice.state for place in at] == ["preempted", "resumed"] * 2  # type: ignore[union-attr]
    tokens = [output.request_id for output in told if output.token_ids]
    mine = [place for place, request_id in enumerate(tokens) if request_id == 1]
    gaps = [b - a - 1 for a, b in pairwise(mine)]
    print(gaps)
    assert sorted(gaps)[-2:] == [1 + missed] * 2


def in_order(engine: Engine) -> list[Output]:
    outputs = []
    while not engine.idle:
        report = engine.step()
        outputs += report.outputs if report else []
    return outputs
