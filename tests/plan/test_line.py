"""One line of parked chats and new requests, in single scenes; test_planner_machine.py has everything at once."""

from .scene import Scene, limits, request

ON = {"ignore_eos": True}
"""To the end of the context."""


def crowd(**changes: object) -> Scene:
    """Three chats of which two fit, so that one is always parked, for as long as anybody looks."""
    base = {"pages": 9, "n_ctx": 576, "quantum": 20.0}
    return Scene(limits(**(base | changes)), *(request(number, 150, **ON) for number in range(3)))


def first_of(scene: Scene, *numbers: int) -> set[int]:
    """Which of these requests compute first."""
    for _ in range(400):
        if ran := {chunk.request.id for chunk in scene.step().chunks} & set(numbers):
            return ran
    raise AssertionError("they wait for ever")


def test_a_new_request_starts_in_turn_although_somebody_is_always_parked() -> None:
    scene = crowd()
    scene.until_parked()
    before = len(scene.out)
    scene.planner.arrive(request(9, 100, **ON))
    arrived = scene.steps
    assert first_of(scene, 9)
    assert scene.steps - arrived <= (before + 1) * (20 + 4)
    assert scene.out, "somebody is parked still"
    scene.drain()


def test_who_has_stayed_makes_room_for_a_new_request_too() -> None:
    """Nobody was ever parked before it came."""
    scene = Scene(limits(pages=9, n_ctx=576, quantum=20.0), request(0, 300, **ON), request(1, 100, **ON))
    scene.step()
    scene.planner.arrive(request(9, 200, **ON))
    steps = [scene.step() for _ in range(20)]
    assert all(chunk.request.id != 9 for plan in steps for chunk in plan.chunks)
    assert scene.planner.parks == 0
    arrived = scene.steps
    assert first_of(scene, 9)
    assert scene.steps - arrived <= 4
    assert scene.planner.parks == 1


def test_a_parked_chat_does_not_pass_a_new_request_that_has_waited_longer() -> None:
    """9 needs more than there is when 1 is parked for room; 1 would fit sooner, and stands behind it."""
    scene = Scene(limits(pages=9, n_ctx=576), request(0, 230, **ON), request(1, 50, **ON))
    scene.step()
    scene.planner.arrive(request(9, 250, max_tokens=5))
    scene.step()
    scene.step()
    scene.planner._room._park(scene.planner._chats.running[1], "no room")
    assert first_of(scene, 1, 9) == {9}
    scene.drain()


def test_priority_puts_a_new_request_before_the_parked_and_waiting_makes_up_for_it() -> None:
    """One step of priority is worth 30 seconds."""
    for waited, first in ((25, 9), (35, 1)):
        scene = Scene(limits(pages=6, n_ctx=384), request(0, 150, **ON), request(1, 60, **ON))
        scene.until_parked()
        for _ in range(waited):
            scene.step()
        assert scene.out == [1]
        scene.planner.arrive(request(9, 250, priority=-1, max_tokens=5))
        assert first_of(scene, 1, 9) == {first}
        scene.drain()


def test_a_request_without_a_slot_is_in_no_ones_way() -> None:
    """It has waited longer than the parked one, but for a slot: the line is never longer than there are slots."""
    scene = Scene(limits(slots=2, pages=6, n_ctx=384), request(0, 150, max_tokens=150, **ON), request(1, 60, **ON))
    scene.planner.arrive(request(9, 250, **ON))
    scene.until_parked()
    assert first_of(scene, 1, 9) == {1}
    scene.drain()


def test_order_of_arrival_among_new_requests() -> None:
    scene = Scene(limits(pages=9, n_ctx=576), request(0, 400, **ON))
    scene.step()
    for number, tokens in ((1, 300), (2, 20)):
        scene.planner.arrive(request(number, tokens, max_tokens=5))
    assert [chunk.request.id for chunk in scene.step().chunks] == [0], "2 would fit, and does not pass 1"
    scene.drain()
