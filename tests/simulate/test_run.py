"""Runs in simulated time: against arithmetic by hand, by seed, and that nothing of a chat is lost."""

from dataclasses import replace

import pytest

from parkway.plan.limits import Knobs, Limits
from parkway.report import View
from simulate.costs import DEVICES, Costs
from simulate.run import run
from simulate.study import DEFAULTS, STUDY, Policy, Scene, simulated
from simulate.traffic import Chat

PLAIN = Costs(step=1.0, row=0.0, token=0.0, page=2.0, step_pages=8, batch_tokens=64, ahead=0)
"""A second a step, two a page."""
FOUR_PAGES = Limits(
    slots=2,
    pages=4,
    n_ctx=256,
    batch_tokens=64,
    logit_rows=2,
    prefix_cache=False,
    host_pages=8,
    knobs=Knobs(victim="smallest"),
)
TWO = [Chat(0.0, 33, 100), Chat(0.0, 30, 95)]
SMALL = Scene("uniform", chats=6, pool=4096, device="h200", every=0.5)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_chat_alone_takes_its_time_alone(ahead: int) -> None:
    costs = Costs(step=1.0, row=0.5, token=0.01, page=1.0, step_pages=8, batch_tokens=64, ahead=ahead)
    limits = replace(FOUR_PAGES, ahead=ahead)
    outcome = run([Chat(2.0, 100, 3)], costs, limits)
    assert outcome.seconds == pytest.approx((1 + 0.64) + (1 + 0.36) + 2 * 1.5)
    assert outcome.slowdowns == [pytest.approx(1.0)]
    assert (outcome.tokens, outcome.parks, outcome.starts) == (3, 0, [0.0])


@pytest.mark.parametrize(("page", "park", "restore"), [(2.0, 4, 4), (0.5, 1, 1)])
def test_two_chats_that_outgrow_the_pool(page: float, park: int, restore: int) -> None:
    """After 88 steps the first, of 121 tokens, is 8 tokens from a third page, and nobody has measured a park yet. The
    second, of 118, is parked; it needs both its pages and a runway, so it waits until the first has ended."""
    states: dict[float, list[str]] = {}

    def watch(view: View) -> None:
        states[view.at] = [slot.state for slot in view.slots]

    outcome = run(TWO, replace(PLAIN, page=page), FOUR_PAGES, watch)
    first_ends, second_returns = 100.0, 100.0 + restore
    assert (outcome.parks, outcome.recomputes, outcome.tokens) == (1, 0, 195)
    assert outcome.parked == [second_returns - 88]
    assert outcome.seconds == second_returns + (95 - 88)
    assert outcome.slowdowns == [first_ends / 100, outcome.seconds / 95]
    assert states[88 + park] == ["decode", "preempting"]
    assert states[88 + park + 1] == ["decode", "preempted"]
    assert states[second_returns - restore] == ["idle", "preempted"]
    assert states[second_returns + 1] == ["idle", "decode"]


def test_a_pool_for_both_parks_nobody() -> None:
    outcome = run(TWO, PLAIN, replace(FOUR_PAGES, pages=6))
    assert (outcome.parks, outcome.parked, outcome.seconds) == (0, [], 100.0)


def test_a_seed_is_a_run() -> None:
    first, again, other = (simulated(SMALL, DEFAULTS[1], seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("policy", [*STUDY, *DEFAULTS, Policy("head", "oldest", 0.5)], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_every_chat_gets_its_answer(policy: Policy, device: str) -> None:
    scene = replace(SMALL, device=device)
    outcome = simulated(scene, policy, 3)
    assert len(outcome.slowdowns) == len(outcome.starts) == scene.chats
    assert min(outcome.slowdowns) > 0.999
    assert 0 < len(outcome.parked) <= outcome.parks  # a token in flight may end a chat that is parked


def test_a_chat_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="chat 1 does not fit a context of 256"):
        run([TWO[0], Chat(1.0, 200, 57)], PLAIN, FOUR_PAGES)
