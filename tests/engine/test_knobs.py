"""The test knobs of the environment, and what a planner is told of what was measured."""

import pytest

from parkway.engine.knobs import knobs_from
from parkway.engine.tallies import Pacer, Tally
from parkway.errors import BadSetting
from parkway.plan.limits import LOOK_AHEAD, Knobs
from parkway.report import BUCKETS


def test_nothing_is_turned_unless_a_variable_is_set() -> None:
    assert knobs_from({}) == Knobs()


def test_every_variable_turns_one_knob() -> None:
    environment = {
        "PARKWAY_PREEMPT_EVERY": "64",
        "PARKWAY_PREEMPT_EXEMPT": "first",
        "PARKWAY_PREEMPT_POLICY": "youngest",
        "PARKWAY_PREEMPT_PLANNER": "off",
    }
    expected = Knobs(park_every=64, exempt_first=True, victim="youngest", look_ahead=False)
    assert knobs_from(environment) == expected


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("EVERY", "-1", "must be a whole number that is not negative, not '-1'"),
        ("EVERY", "often", "must be a whole number that is not negative, not 'often'"),
        ("POLICY", "loudest", "must be one of cheapest, smallest, largest, youngest, oldest, not 'loudest'"),
        ("PLANNER", "", "must be one of on, off, not ''"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(name: str, value: str, sentence: str) -> None:
    variable = f"PARKWAY_PREEMPT_{name}"
    with pytest.raises(BadSetting, match=f"^{variable}: {sentence}$"):
        knobs_from({variable: value})


def test_the_look_ahead_is_the_time_of_a_park_in_steps() -> None:
    pacer = Pacer()
    assert pacer.pace(0).look_ahead == LOOK_AHEAD
    pacer.stepped(0.010, tokens=4)
    pacer.copied(0.035, pages=9, to_host=True)
    assert pacer.pace(1.5).look_ahead == 4
    assert pacer.pace(1.5).now == 1.5
    pacer.copied(0.025, pages=9, to_host=False)
    assert pacer.pace(0).switch == pytest.approx(0.060)


def test_only_copies_of_many_pages_tell_what_a_page_costs_and_only_prompts_what_a_token_does() -> None:
    pacer = Pacer()
    pacer.stepped(0.010, tokens=4)
    pacer.copied(0.010, pages=1, to_host=True)
    assert (pacer.pace(0).page_seconds, pacer.pace(0).token_seconds) == (0, 0)
    pacer.copied(0.030, pages=10, to_host=False)
    pacer.stepped(0.100, tokens=100)
    assert pacer.pace(0).page_seconds == pytest.approx(0.002)
    assert pacer.pace(0).token_seconds == pytest.approx(0.001)


def test_a_duration_falls_into_the_first_bucket_that_holds_it() -> None:
    tally = Tally()
    for seconds in (0.0005, 0.001, 0.0011, 1000.0):
        tally.add(seconds)
    counts = tally.histogram.counts
    assert (counts[0], counts[1], counts[-1], sum(counts)) == (2, 1, 1, 4)
    assert len(counts) == len(BUCKETS) + 1
    assert tally.histogram.seconds == pytest.approx(1000.0026)
