"""Who leaves, who comes back and when, in single scenes; test_planner_machine.py has everything at once."""

from typing import Any

import pytest

from parkway.plan.limits import Knobs

from .scene import Scene, limits, request


@pytest.mark.parametrize(
    ("victim", "gone"), [("smallest", 2), ("largest", 3), ("youngest", 3), ("oldest", 1), ("cheapest", 2)]
)
def test_victim_by_policy(victim: Any, gone: int) -> None:
    """0 leads; one page is missing, which any of the others would free, 2 with the least to copy."""
    scene = Scene(
        limits(pages=12, n_ctx=512, knobs=Knobs(victim=victim)),
        *(request(number, tokens) for number, tokens in [(0, 150), (1, 80), (2, 20), (3, 90)]),
    )
    scene.until_parked()
    assert scene.out == [gone]


def test_starved_chat_is_passed_over_while_there_is_another() -> None:
    knobs = Knobs(victim="smallest")
    scene = Scene(limits(pages=7, n_ctx=448, knobs=knobs), request(0, 100), request(1, 20), request(2, 30))
    slots = scene.planner._chats.slots
    scene.step()
    assert slots[1]
    slots[1].parks = 3
    scene.until_parked()
    assert scene.out == [2]


def test_exempt_is_never_parked() -> None:
    knobs = Knobs(exempt_first=True)
    scene = Scene(limits(pages=5, knobs=knobs), request(0, 20), request(1, 120))
    scene.drain()
    assert scene.of(0) == []
    assert scene.of(1)[:1] == ["preempted"]


def test_first_parked_comes_back_first_and_new_prompts_wait_behind() -> None:
    scene = Scene(limits(pages=8, n_ctx=512), request(0, 150), request(1, 60), request(2, 50))
    scene.until_parked(2)
    left = [who for _, who, notice in scene.told if notice.state == "preempted"]
    scene.planner.arrive(request(3, 10, max_tokens=1))
    scene.step()
    assert 3 not in scene.tokens
    scene.drain()
    back = [who for _, who, notice in scene.told if notice.state == "resumed"]
    assert back[:2] == left[:2]


def test_priority_comes_back_first_until_the_other_has_waited() -> None:
    """30 seconds are worth one step of priority."""
    for seconds, first in ((0.01, 2), (1.0, 1)):
        scene = Scene(
            limits(pages=8, n_ctx=512, knobs=Knobs(victim="oldest")),
            request(0, 150),
            request(1, 60, priority=1),
            request(2, 50),
            seconds=seconds,
        )
        scene.until_parked(2)
        assert [(who, notice.ahead) for _, who, notice in scene.told] == [(1, 0), (2, 0 if first == 2 else 1)]
        scene.drain()
        back = [who for _, who, notice in scene.told if notice.state == "resumed"]
        assert back[0] == first


def test_margin_is_waived_when_nobody_is_resident() -> None:
    """A chat that holds the whole pool comes back to it, though no page is left for a while ahead of it."""
    scene = Scene(limits(knobs=Knobs(park_every=150)), request(0, 60))
    scene.drain()
    assert scene.of(0) == ["preempted", "resumed"]
    assert [len(copy.sources) for copy in scene.copies] == [4, 4]


def test_leader_goes_too_when_it_is_its_turn() -> None:
    """1 waits for a quantum, then 0, which leads and has stayed for one, makes room; and so on in turn."""
    scene = Scene(limits(quantum=20.0), request(0, 60), request(1, 50))
    scene.drain()
    assert scene.of(0)[:2] == ["preempted", "resumed"]
    waits = [notice.waited_ms / 1000 for _, _, notice in scene.told if notice.state == "resumed"]
    assert len(waits) > 3
    assert max(waits) <= 20 + 4


@pytest.mark.parametrize("host_pages", [0, 20])
def test_each_of_three_waits_no_longer_than_the_turns_before_it(host_pages: int) -> None:
    scene = Scene(
        limits(pages=6, n_ctx=384, quantum=20.0, host_pages=host_pages),
        request(0, 60),
        request(1, 50),
        request(2, 40),
        seconds=0.5,
    )
    scene.drain()
    waits = [notice.waited_ms / 1000 for _, _, notice in scene.told if notice.state == "resumed"]
    assert max(waits) <= 3 * (20 + 4)


def test_nobody_is_turned_out_while_it_computes_again_what_it_had() -> None:
    """A quantum is shorter than a replay; if it ended one, nobody would ever get on."""
    scene = Scene(limits(quantum=1.0, host_pages=0, chunk_tokens=4), request(0, 60), request(1, 50))
    scene.drain()
    assert scene.tokens == {0: 196, 1: 206}


def test_rotation_does_not_turn_out_who_would_come_back_first() -> None:
    """0 would pass 1 by its priority: parked for it, it would be back at once."""
    scene = Scene(limits(quantum=5.0), request(0, 60, priority=-2), request(1, 50))
    scene.until_parked()
    for _ in range(40):
        scene.step()
    assert scene.of(0) == []
    scene.drain()


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_pages_of_a_cancelled_chat_are_on_their_way_too(prefix_cache: bool) -> None:
    """Nobody else is parked for room that is there when the copy has landed."""
    scene = Scene(
        limits(pages=8, n_ctx=512, prefix_cache=prefix_cache), request(0, 150), request(1, 60), request(2, 50)
    )
    scene.lands = False
    scene.until_parked()
    assert scene.planner.cancel(scene.out[0])
    for _ in range(20):
        scene.step()
    assert scene.planner.parks == 1
