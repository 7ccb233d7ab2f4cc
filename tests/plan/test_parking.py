"""Parking in single scenes: what is copied when, and what is told; test_planner_machine.py has everything at once."""

import pytest

from parkway.plan.copies import Owner
from parkway.plan.limits import Knobs
from parkway.request import Notice, Preempt

from .scene import Scene, limits, request


def test_two_chats_that_fit_alone_and_not_together_both_end() -> None:
    """In a pool of 256 tokens, with answers up to 240 and 250 tokens in all."""
    scene = Scene(limits(), request(0, 60, max_tokens=180), request(1, 60, max_tokens=190))
    scene.drain()
    assert scene.tokens == {0: 180, 1: 190}
    assert scene.planner.parks == scene.planner.resumes >= 1
    assert scene.planner.pages_used == 0


@pytest.mark.parametrize("host_pages", [0, 20])
def test_two_prompts_of_nearly_the_whole_pool_wait_for_each_other(host_pages: int) -> None:
    """The second would not have room, so it has not started, and nobody is parked."""
    scene = Scene(limits(host_pages=host_pages), request(0, 240), request(1, 250))
    assert [chunk.request.id for chunk in scene.step().chunks] == [0]
    scene.drain()
    assert (scene.tokens, scene.planner.parks) == ({0: 16, 1: 6}, 0)


def test_park_and_return_step_by_step() -> None:
    scene = Scene(limits(pages=5), request(0, 120), request(1, 60))
    scene.lands = False
    plan = scene.until_parked()
    (park,) = plan.copies
    assert (park.owner, len(park.sources)) == (Owner.PARK, 2)
    assert [chunk.request.id for chunk in plan.chunks] == [0], "a step that fits goes ahead beside the copy"
    assert (scene.planner.parked, scene.planner.copying, scene.planner.pages_used) == (1, 1, 5)
    assert scene.told == [(scene.steps, 1, Notice("preempted"))]
    scene.land()
    assert (scene.planner.parked, scene.planner.copying, scene.planner.pages_used) == (1, 0, 3)
    while not (plan := scene.step()).copies:
        assert [chunk.request.id for chunk in plan.chunks] == [0]
    (restore,) = plan.copies
    assert (restore.owner, restore.sources) == (Owner.RESTORE, park.targets)
    assert scene.of(1) == ["preempted"], "resumed is said when the pages are back"
    assert 1 not in [chunk.request.id for chunk in scene.step().chunks]
    scene.land()
    assert scene.of(1) == ["preempted", "resumed"]
    assert 1 in [chunk.request.id for chunk in scene.step().chunks]
    scene.lands = True
    scene.drain()
    assert scene.tokens == {0: 136, 1: 196}


def test_time_out_is_told() -> None:
    scene = Scene(limits(pages=5), request(0, 120), request(1, 60), seconds=0.5)
    scene.drain()
    (left,) = [step for step, who, notice in scene.told if (who, notice.state) == (1, "preempted")]
    ((back, notice),) = [(step, notice) for step, who, notice in scene.told if (who, notice.state) == (1, "resumed")]
    assert notice.waited_ms == 500 * (back - left)
    assert scene.planner.take_record(1) == Preempt(parks=1, recomputes=0, parked_ms=notice.waited_ms)
    assert scene.planner.take_record(1) == Preempt(), "it is taken once"


@pytest.mark.parametrize("changes", [{"host_pages": 0}, {"host_pages": 1}, {}])
def test_without_room_or_where_copies_are_dearer_it_is_computed_again(changes: dict[str, int]) -> None:
    """A park and a restore of its two pages would take 4 s, its 116 tokens at most 1.2 s."""
    dear = {} if changes else {"page_seconds": 1.0, "token_seconds": 0.002}
    scene = Scene(limits(pages=5, **changes), request(0, 120), request(1, 60), **dear)
    scene.drain()
    assert not scene.copies
    assert scene.of(1) == ["preempted", "resumed", "recomputed"]
    assert scene.planner.recomputes == scene.planner.take_record(1).recomputes == 1
    assert scene.tokens == {0: 136, 1: 196}


def test_refused_copy_is_a_park_by_recompute() -> None:
    scene = Scene(limits(pages=5), request(0, 120), request(1, 60))
    scene.lands = False
    (park,) = scene.until_parked().copies
    scene.open = []
    scene.planner.refused(park.id)
    scene.lands = True
    assert (scene.planner.pages_used, scene.planner.recomputes, scene.planner.copying) == (3, 1, 0)
    scene.drain()
    assert scene.of(1) == ["preempted", "resumed", "recomputed"]


def test_second_park_copies_only_what_is_new() -> None:
    scene = Scene(limits(prefix_cache=True, knobs=Knobs(park_every=50, forget=True)), request(0, 130))
    scene.drain()
    parks = [copy for copy in scene.copies if copy.owner is Owner.PARK]
    assert [len(copy.sources) for copy in parks] == [3, 2], "two sealed pages are on the host already"
    assert [len(copy.sources) for copy in scene.copies if copy.owner is Owner.RESTORE] == [3, 4]


def test_what_is_still_in_the_pool_is_not_copied_back() -> None:
    scene = Scene(limits(prefix_cache=True, knobs=Knobs(park_every=50)), request(0, 130))
    scene.drain()
    restores = [len(copy.sources) for copy in scene.copies if copy.owner is Owner.RESTORE]
    assert restores == [1, 1], "only the page that was not full"


def test_saving_ahead_makes_the_park_a_single_page() -> None:
    scene = Scene(limits(pages=9, n_ctx=576, prefix_cache=True), request(0, 200), request(1, 150))
    scene.until_parked()
    saved = [copy for copy in scene.copies if copy.owner is Owner.SAVE_AHEAD]
    assert sum(len(copy.sources) for copy in saved) == 3
    (park,) = [copy for copy in scene.copies if copy.owner is Owner.PARK]
    assert len(park.sources) == 1


def test_ten_thousand_parks_in_a_row_leave_nothing_behind() -> None:
    scene = Scene(limits(host_pages=6, prefix_cache=True, knobs=Knobs(park_every=1, forget=True)))
    parking = scene.planner._room.parking
    for number in range(52):
        scene.planner.arrive(request(number, 20, max_tokens=200))
        scene.drain()
        scene.planner.take_record(number)
    assert scene.planner.parks == scene.planner.resumes > 10_000
    assert (parking.host.used, scene.planner.pages_used, parking.under_way, parking.planned) == (0, 0, 0, [])
    assert not scene.planner._room.records
