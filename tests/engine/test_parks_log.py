"""What `--log parks` says of parks, copies and returns: every line as it is, and why a chat was parked."""

import re
from itertools import count
from typing import Any

import pytest

from parkway.engine.engine import Engine
from parkway.engine.parks import logger
from parkway.errors import NoRoom
from parkway.plan.copies import Copy, Owner
from parkway.plan.limits import Knobs
from tests.engine.toy import ToyCopies, make_request, make_toy

LINES = (
    r"request \d+ preempted \(no room\): \d+ pages are used, \d+ chats wait",
    r"request \d+ resumed after \d+ ms",
    *(rf"{owner.value} issued: \d+ pages" for owner in Owner),
    *(rf"{owner.value} completed after \d+\.\d ms: \d+ pages" for owner in Owner),
    "a park was refused, so the chat is computed again: the host is full",
)
EVERY = Knobs(park_every=40, forget=True)
"""A pool that holds all four chats is of no concern to it."""


def said(caplog: pytest.LogCaptureFixture, **limits: Any) -> list[str]:
    """Of four chats that outgrow eight pages together, unless `limits` say otherwise; a step takes a second."""
    caplog.set_level("INFO", logger.name)
    engine = make_toy(**{"pages": 8, "host_pages": 64, **limits})
    seconds = count()
    engine._clock = lambda: float(next(seconds))
    for index in range(4):
        engine.arrive(make_request(index, 20, max_tokens=200, ignore_eos=True))
    run(engine)
    return [record.getMessage() for record in caplog.records if record.name == logger.name]


def run(engine: Engine) -> None:
    while not engine.idle:
        engine.step()


def reasons(lines: list[str]) -> set[str]:
    return {found[1] for line in lines if (found := re.search(r"preempted \((.*)\)", line))}


def refuse(copies: ToyCopies, copy: Copy) -> None:
    if copy.to_host:
        raise NoRoom("the host is full")


def test_every_line_has_its_wording(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said(caplog)
    with monkeypatch.context() as patch:
        patch.setattr(ToyCopies, "submit", refuse)
        lines = said(caplog)
    unknown = [line for line in lines if not any(re.fullmatch(known, line) for known in LINES)]
    unseen = [known for known in LINES if not any(re.fullmatch(known, line) for line in lines)]
    assert (unknown, unseen) == ([], [])


def test_only_a_park_that_is_refused_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ToyCopies, "submit", refuse)
    said(caplog)
    levels = {(record.levelname, "refused" in record.getMessage()) for record in caplog.records}
    assert levels == {("INFO", False), ("WARNING", True)}


@pytest.mark.parametrize(
    ("why", "limits"),
    [
        ("no room", {}),
        ("no page is left", {"knobs": Knobs(look_ahead=False)}),
        ("a test knob", {"pages": 64, "knobs": EVERY}),
    ],
)
def test_a_park_says_why(why: str, limits: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert reasons(said(caplog, **limits)) == {why}


def test_whose_turn_is_over_is_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    assert "its turn is over" in reasons(said(caplog, quantum=30.0))


def test_there_is_a_line_for_each_park_and_each_return(caplog: pytest.LogCaptureFixture) -> None:
    lines = said(caplog)
    parks, returns = (sum(word in line for line in lines) for word in (" preempted ", " resumed "))
    assert parks == returns > 0
