"""Pages are saved ahead of the one that will be parked first, and only where somebody will be."""

from parkway.plan.copies import Owner
from tests.plan.scene import Scene, limits, request


def saved(scene: Scene) -> int:
    """Pages that were saved ahead."""
    return sum(len(copy.sources) for copy in scene.copies if copy.owner is Owner.SAVE_AHEAD)


def run(scene: Scene) -> Scene:
    while not scene.planner.idle:
        scene.step()
    return scene


def test_nothing_is_saved_of_chats_that_end_before_they_outgrow_the_pool() -> None:
    chats = [request(number, 100, max_tokens=90, ignore_eos=True) for number in range(4)]
    scene = run(Scene(limits(pages=12, n_ctx=256, prefix_cache=True), *chats))
    assert (saved(scene), scene.planner.parks) == (0, 0)


def test_of_chats_that_will_outgrow_it_the_next_victim_is_saved() -> None:
    chats = [request(number, 100 + number, max_tokens=150, ignore_eos=True) for number in range(3)]
    scene = run(Scene(limits(pages=9, n_ctx=256, prefix_cache=True), *chats))
    assert scene.planner.parks > 0
    assert saved(scene) > 0
    parked = [len(copy.sources) for copy in scene.copies if copy.owner is Owner.PARK]
    assert parked[0] == 1, "all but the unsealed page was there"
