"""Context shifts in single scenes; test_planner_machine.py has everything at once."""

from typing import Any

import pytest

from parkway.plan.copies import Owner
from parkway.plan.shift import shed

from .scene import Scene, limits, request


@pytest.mark.parametrize(
    ("n_ctx", "prompt", "asked", "gone"),
    [
        (512, 10, {}, range(256)),
        (512, 10, {"n_keep": 1}, range(64, 256)),
        (512, 10, {"n_keep": -1}, range(64, 256)),
        (512, 128, {"n_keep": -1}, range(128, 320)),
        (512, 128, {"n_keep": 129}, range(192, 320)),
        (512, 500, {"n_keep": -1}, range(384, 448)),
        (512, 10, {"n_keep": 10_000}, range(384, 448)),
        (512, 10, {"n_discard": 1}, range(64)),
        (512, 10, {"n_discard": 150}, range(128)),
        (512, 10, {"n_discard": 10_000}, range(448)),
        (512, 10, {"n_keep": 64, "n_discard": 10_000}, range(64, 448)),
        (128, 10, {"n_keep": -1}, range(64)),
        (65, 10, {}, range(64)),
        (100, 99, {"n_keep": -1, "n_discard": 1}, range(64)),
    ],
)
def test_whole_pages_behind_the_kept_ones_go(n_ctx: int, prompt: int, asked: dict[str, Any], gone: range) -> None:
    assert shed(request(1, prompt, **asked), n_ctx) == gone


def shifting(**changes: Any) -> Any:
    return limits(shifts=True, **changes)


def test_an_endless_chat_goes_on_and_nobody_is_told() -> None:
    scene = Scene(shifting(), request(1, 50, n_keep=-1))
    for _ in range(2000):
        scene.step()
    (slot,) = filter(None, scene.planner._chats.slots)
    assert (scene.told, scene.planner.parks) == ([], 0)
    assert slot.answer_tokens == scene.tokens[1] == 2000
    assert slot.tokens[:50] == slot.request.prompt
    assert (slot.view.tokens, slot.view.prompt_tokens) == (2050, 50)
    assert scene.planner.cancel(1)
    assert scene.planner.idle


@pytest.mark.parametrize("max_tokens", [200, 206, 207, 500])
def test_an_answer_has_as_many_tokens_as_were_asked_for(max_tokens: int) -> None:
    scene = Scene(shifting(), request(1, 50, max_tokens=max_tokens))
    scene.drain()
    assert scene.tokens[1] == max_tokens


def test_endless_chats_take_turns() -> None:
    """Each is out now and then, however often those inside are shifted in a quantum."""
    chats = [request(number, 100) for number in range(3)]
    scene = Scene(shifting(pages=5, quantum=300.0, slots=3), *chats)
    for _ in range(6000):
        scene.step()
    assert min(scene.tokens.values()) > 1000
    assert all(scene.of(number).count("resumed") > 2 for number in range(3))


def test_the_kept_pages_are_not_computed_again() -> None:
    scene = Scene(shifting(prefix_cache=True), request(1, 130, n_keep=-1, max_tokens=200))
    starts = [chunk.start for _ in range(140) for chunk in scene.step().chunks if len(chunk.tokens) > 1]
    assert starts == [0, 128]  # 130 tokens are kept up to a page that is the last but one


def test_what_was_saved_ahead_is_not_taken_for_what_is_there_after_a_shift() -> None:
    scene = Scene(shifting(pages=7, prefix_cache=True), *(request(number, 150 + 20 * number) for number in range(2)))
    scene.lands = False
    parking = scene.planner._room.parking
    shifted = None
    for _ in range(600):
        shed_before = {slot: slot.shed for slot in scene.planner._chats.running}
        scene.step()
        for copy in [copy for copy in scene.open if copy.owner is not Owner.SAVE_AHEAD]:
            scene.planner.landed(copy.id, scene.steps)
            scene.open.remove(copy)
        saving = [slot for copy, slot, _ in parking._open.values() if copy.owner is Owner.SAVE_AHEAD]
        shifted = next((slot for slot in saving if slot.shed > shed_before.get(slot, slot.shed)), None)
        if shifted:
            break
    assert shifted, "nobody was shifted while it was saved ahead"
    while shifted.sealed < 2:
        scene.step()
    scene.lands = True
    scene.land()
    assert all(parking.host.find(shifted.name(page)) is None for page in range(shifted.sealed))
