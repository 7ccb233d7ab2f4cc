"""Who gets the next slot, in single scenes; test_planner_machine.py has everything at once."""

from itertools import pairwise

from msgspec.structs import replace

from parkway.request import Request

from .scene import Scene, limits, request


def of(client: str, number: int, priority: int = 0, tokens: int = 5) -> Request:
    return replace(request(number, 20, priority, max_tokens=tokens, ignore_eos=True), client=client)


def starts(scene: Scene, most: int = 4000) -> list[int]:
    """The requests in the order of their first steps, until nobody is left."""
    seen: dict[int, None] = {}
    for _ in range(most):
        if scene.planner.idle:
            return list(seen)
        seen |= dict.fromkeys(chunk.request.id for chunk in scene.step().chunks)
    raise AssertionError("somebody does not get on")


def roomy(slots: int) -> Scene:
    return Scene(limits(slots=slots, pages=16))


def arrive(scene: Scene, *requests: Request) -> None:
    for each in requests:
        scene.planner.arrive(each)


def test_one_request_does_not_wait_behind_a_hundred_of_another_client() -> None:
    scene = roomy(4)
    arrive(scene, *(of("a", number) for number in range(100)))
    scene.step()
    arrive(scene, of("b", 100))
    order = starts(scene)
    assert order.index(100) <= 4 + 1
    assert sorted(order) == list(range(101))


def test_two_clients_take_turns() -> None:
    scene = roomy(1)
    arrive(scene, *(of("a", number) for number in range(5)), *(of("b", number) for number in range(10, 13)))
    assert starts(scene) == [0, 10, 1, 11, 2, 12, 3, 4]


def test_slots_are_shared_and_not_turns() -> None:
    """a's chats are long, b's short: whenever one of b's ends, the next of b's gets its slot."""
    scene = roomy(2)
    arrive(scene, *(of("a", number, tokens=100) for number in range(2)), *(of("b", number) for number in range(10, 15)))
    order = starts(scene)
    assert order[:6] == [0, 10, 11, 12, 13, 14]


def test_who_came_first_is_first_among_clients_that_have_nothing() -> None:
    """a has had its first turn before the others came, and has its second before theirs; its third is the last."""
    scene = roomy(1)
    arrive(scene, *(of("a", number) for number in range(3)))
    scene.step()
    arrive(scene, *(of(f"b{number}", number) for number in range(10, 15)))
    assert starts(scene) == [0, 1, 10, 11, 12, 13, 14, 2]


def test_ever_new_clients_do_not_keep_one_waiting() -> None:
    """Somebody who has never had a turn arrives in every step."""
    scene = roomy(1)
    arrive(scene, of("a", 0), of("a", 1))
    for number in range(10, 60):
        arrive(scene, of(f"b{number}", number))
        ran = {chunk.request.id for chunk in scene.step().chunks}
        if 1 in ran:
            return
    raise AssertionError("a waits for ever")


def test_order_of_arrival_within_a_client_and_its_priorities() -> None:
    """One step of priority is worth 30 seconds of waiting."""
    for waited, first in ((25, 2), (35, 1)):
        scene = roomy(1)
        arrive(scene, of("a", 0, tokens=100), of("a", 1), of("b", 5))
        for _ in range(waited):
            scene.step()
        arrive(scene, of("a", 2, priority=-1), of("a", 3, priority=1))
        order = starts(scene)
        assert [each for each in order if each in (1, 2, 3)] == [first, 3 - first, 3]


def test_priority_does_not_buy_a_client_more_than_its_share() -> None:
    scene = roomy(1)
    arrive(scene, *(of("a", number, priority=-100) for number in range(3)), *(of("b", number) for number in (10, 11)))
    order = starts(scene)
    assert order == [0, 10, 1, 11, 2]
    assert all((left < 10) != (right < 10) for left, right in pairwise(order))


def test_who_is_cancelled_has_had_no_turn() -> None:
    scene = roomy(1)
    arrive(scene, of("a", 0), of("a", 1), of("b", 10), of("b", 11))
    scene.step()
    assert scene.planner.cancel(10)
    assert starts(scene) == [0, 11, 1]
