"""Checkpoints of states in single scenes; test_planner_machine.py has everything at once."""

from typing import Any

import pytest
from msgspec.structs import replace

from parkway.plan.checkpoints import Units
from parkway.plan.limits import INTERVAL, Knobs, Limits, Pace, interval_of
from parkway.plan.planner import Planner
from parkway.plan.step import Chunk

from .scene import Scene, limits, request


def with_states(**changes: Any) -> Limits:
    return limits(**({"pages": 24, "n_ctx": 1024, "prefix_cache": True, "checkpoints": 4, "interval": 128} | changes))


def planned(scene: Scene, number: int) -> list[Chunk]:
    """All chunks of a request, from now on until nobody is here."""
    chunks: list[Chunk] = []
    while not scene.planner.idle:
        chunks += [chunk for chunk in scene.step().chunks if chunk.request.id == number]
    return chunks


def of(scene: Scene, number: int, tokens: int, beginning: int = 0, **sampling: Any) -> list[Chunk]:
    """Chunks of a request whose first `beginning` tokens are those of request 0."""
    scene.planner.arrive(beginning_alike(number, tokens, beginning, **({"max_tokens": 1} | sampling)))
    return planned(scene, number)


def beginning_alike(number: int, tokens: int, beginning: int, **sampling: Any) -> Any:
    asked = request(number, tokens, **sampling)
    return request_with(asked, request(0, beginning or 1).prompt[:beginning] + asked.prompt[beginning:])


def request_with(asked: Any, prompt: list[int]) -> Any:
    return replace(asked, prompt=prompt)


def places(chunks: list[Chunk]) -> list[int]:
    return [chunk.end for chunk in chunks if chunk.state_to is not None]


def test_one_is_taken_every_so_often_and_at_the_last_page_boundary_of_a_prompt() -> None:
    scene = Scene(with_states(checkpoints=9))
    chunks = of(scene, 0, 450, max_tokens=100)
    assert places(chunks) == [128, 256, 384, 448, 512]
    assert [chunk.end for chunk in chunks[:5]] == [128, 256, 384, 448, 450]


@pytest.mark.parametrize(("tokens", "taken"), [(64, []), (65, [64]), (128, [64]), (129, [128]), (192, [128])])
def test_the_last_token_of_a_prompt_is_behind_it(tokens: int, taken: list[int]) -> None:
    assert places(of(Scene(with_states(interval=512)), 0, tokens)) == taken


@pytest.mark.parametrize(("shared", "found"), [(450, 448), (447, 384), (300, 256), (127, 0)])
def test_a_chat_begins_at_the_longest_that_it_shares(shared: int, found: int) -> None:
    scene = Scene(with_states(checkpoints=9))
    first = {chunk.end: chunk.state_to for chunk in of(scene, 0, 450)}
    chunk, *rest = of(scene, 1, 500, beginning=shared)
    assert (chunk.start, chunk.cached) == (found, found)
    assert chunk.state_from == (first[found] if found else None)
    assert all(each.state_from is None for each in rest)


def test_one_is_taken_where_a_chat_parts_with_another() -> None:
    scene = Scene(with_states(interval=512))
    assert places(of(scene, 0, 450)) == [448]
    second = of(scene, 1, 500, beginning=300)
    assert [chunk.end for chunk in second] == [256, 448, 500]
    assert places(second) == [256, 448]
    third = of(scene, 2, 480, beginning=300)
    assert (third[0].start, third[0].state_from) == (256, second[0].state_to)
    assert places(third) == [448]


def test_one_is_taken_where_a_chat_parts_with_one_that_came_back() -> None:
    scene = Scene(with_states(interval=512, knobs=Knobs(park_every=70, forget=True)), request(0, 200, max_tokens=100))
    planned(scene, 0)
    assert scene.planner.resumes == 1
    assert places(of(scene, 1, 500, beginning=130)) == [128, 448]


def test_none_is_taken_where_a_chat_only_goes_on() -> None:
    """Behind an answer; where somebody else went on before, one is taken."""
    scene = Scene(with_states(interval=512))
    of(scene, 0, 200, max_tokens=150)
    turns = []
    for number in 1, 2, 3:
        asked = request(number, 150, max_tokens=1)
        scene.planner.arrive(request_with(asked, request(0, 200).prompt + [7] * 150 + asked.prompt))
        turns.append(planned(scene, number))
    assert [(turn[0].start, places(turn)) for turn in turns] == [(192, [448]), (192, [320, 448]), (320, [448])]


def test_a_third_waits_for_the_one_that_the_second_leaves() -> None:
    scene = Scene(with_states(interval=512, batch_tokens=100))
    of(scene, 0, 450)
    for number in 1, 2:
        scene.planner.arrive(beginning_alike(number, 500, 300))
    chunks = [chunk for _ in range(12) for chunk in scene.step().chunks]
    assert {chunk.request.id: chunk.start for chunk in reversed(chunks)} == {1: 0, 2: 256}


def test_a_chat_that_begins_anew_forgets_where_it_parted() -> None:
    """Its own pages go on from there by now."""
    scene = Scene(with_states(interval=512, checkpoints=1, host_pages=0, knobs=Knobs(park_every=70)))
    of(scene, 0, 450)
    scene.planner.arrive(beginning_alike(1, 400, 300, max_tokens=100))
    assert places([chunk for _ in range(3) for chunk in scene.step().chunks]) == [256, 384]
    scene.planner.arrive(request(2, 100, max_tokens=1))
    chunks = planned(scene, 1)
    again = next(chunk for chunk in chunks if chunk.start == 0)
    assert again.end == 384
    assert places(chunks) == [384]


def test_a_chat_that_is_shifted_forgets_where_it_parted() -> None:
    """What is left of it begins otherwise."""
    scene = Scene(with_states(interval=512, shifts=True))
    of(scene, 0, 450)
    chunks = of(scene, 1, 500, beginning=400, max_tokens=600)
    shifted = next(i for i in range(1, len(chunks)) if chunks[i].start < chunks[i - 1].start)
    assert places(chunks[:shifted]) == [384, 448, 512]
    assert places(chunks[shifted:]) == [448, 512]


def after_a_shift(scene: Scene, **asked: Any) -> list[Chunk]:
    chunks = of(scene, 0, 300, max_tokens=900, **asked)
    shifted = next(i for i in range(1, len(chunks)) if chunks[i].start < chunks[i - 1].start)
    return chunks[shifted:]


def test_a_shifted_chat_leaves_one_at_the_end_of_what_is_left() -> None:
    assert places(after_a_shift(Scene(with_states(interval=512, shifts=True)))) == [448, 512]


def test_a_shifted_chat_begins_at_one_in_what_it_keeps() -> None:
    """Its answer is one token again and again, so that more than its prompt is as it was."""
    first = after_a_shift(Scene(with_states(interval=512, shifts=True)), n_keep=-1)[0]
    assert first.start == 512
    assert first.state_from is not None


def test_nobody_begins_where_there_is_none() -> None:
    """The pages are there, and named: parks find them."""
    scene = Scene(with_states(checkpoints=0))
    assert places(of(scene, 0, 450)) == []
    assert of(scene, 1, 450, beginning=450)[0].start == 0
    assert [chunk.end for chunk in of(scene, 2, 450, beginning=300)] == [450]


def test_without_states_pages_are_enough() -> None:
    scene = Scene(with_states(checkpoints=None))
    assert [chunk.end for chunk in of(scene, 0, 450)] == [450]
    (chunk,) = of(scene, 1, 450, beginning=450)
    assert (chunk.start, chunk.state_from, chunk.state_to) == (448, None, None)


def test_the_one_that_was_used_least_recently_is_taken_for_another() -> None:
    scene = Scene(with_states(checkpoints=2, pages=40))
    of(scene, 0, 100)
    of(scene, 1, 100)
    assert of(scene, 2, 100, beginning=99)[0].start == 64, "used once more"
    of(scene, 3, 100)
    assert of(scene, 4, 100, beginning=99)[0].start == 64
    assert of(scene, 1, 100)[0].start == 0


def test_choices_of_one_prompt_wait_for_its_last_checkpoint() -> None:
    scene = Scene(with_states(), *[request_with(request(number, 300), request(0, 300).prompt) for number in range(3)])
    chunks = [chunk for _ in range(6) for chunk in scene.step().chunks]
    assert [(chunk.request.id, chunk.start) for chunk in chunks if chunk.start < 300] == [
        (0, 0),
        (0, 128),
        (0, 256),
        (1, 256),
        (2, 256),
    ]


def test_a_chat_that_lost_its_pages_begins_again_at_a_checkpoint() -> None:
    scene = Scene(with_states(host_pages=0, knobs=Knobs(park_every=70)), request(0, 200, max_tokens=100))
    chunks = planned(scene, 0)
    again = next(index for index, chunk in enumerate(chunks) if index and chunk.start < chunks[index - 1].end)
    assert chunks[again].start == 256
    assert chunks[again].state_from == next(chunk.state_to for chunk in chunks if chunk.end == 256)
    assert scene.planner.recomputes == 1


def test_a_chat_that_comes_back_by_copies_goes_on_with_the_state_in_its_slot() -> None:
    scene = Scene(with_states(knobs=Knobs(park_every=70, forget=True)), request(0, 200, max_tokens=100))
    chunks = planned(scene, 0)
    assert scene.planner.resumes == 1
    assert [chunk.start for chunk in chunks[1:]] == [chunk.end for chunk in chunks[:-1]]
    assert all(chunk.state_from is None for chunk in chunks)


def test_one_that_a_chat_is_about_to_begin_at_is_not_taken_for_another() -> None:
    scene = Scene(with_states(slots=2, batch_tokens=2, checkpoints=1))
    (written,) = [chunk.state_to for chunk in of(scene, 0, 65) if chunk.state_to is not None]
    begins = request(2, 70)
    for each in request(1, 400), request_with(begins, request(0, 65).prompt + begins.prompt[65:]):
        scene.planner.arrive(each)
    chunks = [chunk for _ in range(300) for chunk in scene.step().chunks]
    first = next(index for index, chunk in enumerate(chunks) if chunk.request.id == 2)
    assert (chunks[first].start, chunks[first].state_from) == (64, written)
    assert [chunk.end for chunk in chunks[:first]][-1] > 128, "where one is due"
    assert places(chunks[:first]) == []


def parked_before_it_begins(**changes: Any) -> tuple[Scene, int | None]:
    """A chat, request 3, that came in at a checkpoint, found no rows left, and has been parked. And that checkpoint."""
    scene = Scene(with_states(slots=3, pages=13, n_ctx=512, batch_tokens=3, **changes))
    (written,) = [chunk.state_to for chunk in of(scene, 0, 65) if chunk.state_to is not None]
    grows, fills, begins = request(1, 60, max_tokens=300), request(2, 400), request(3, 70)
    for each in grows, fills, request_with(begins, request(0, 65).prompt + begins.prompt[65:]):
        scene.planner.arrive(each)
    scene.until_parked()
    assert scene.out == [3]
    return scene, written


def test_a_chat_that_is_dropped_before_it_begins_lets_go_of_its_checkpoint() -> None:
    scene, _ = parked_before_it_begins(host_pages=0)
    assert not any(scene.planner._room.checkpoints._units._held)


def test_a_chat_that_is_parked_before_it_begins_still_begins_there() -> None:
    scene, written = parked_before_it_begins(knobs=Knobs(forget=True))
    chunk, *_ = planned(scene, 3)
    assert (chunk.start, chunk.state_from) == (64, written)


def test_one_that_a_cancelled_chat_was_to_write_is_free_again() -> None:
    planner = Planner(with_states(checkpoints=1, ahead=1))
    planner.arrive(request(0, 100))
    (chunk,) = planner.plan(Pace()).chunks
    assert chunk.state_to == 0
    planner.cancel(0)
    planner.arrive(request(1, 100))
    (second,) = planner.plan(Pace()).chunks
    assert second.end == 64
    assert second.state_to is None, "it is being written"
    planner.sampled(chunk, None)
    planner.sampled(second, None)
    planner.cancel(1)
    planner.arrive(request(0, 100))
    assert planner.plan(Pace()).chunks[0].start == 0
    assert planner._room.checkpoints._units._written == {0}


def test_units_are_found_when_they_have_been_written() -> None:
    units = Units(2)
    unit = units.take()
    assert unit is not None
    assert b"a" not in units
    units.seal(unit, b"a")
    assert b"a" in units
    assert units.hold(b"a") == unit
    other = units.take()
    assert other is not None
    assert units.take() is None, "one is held, one written"
    units.seal(other, b"a")
    assert units.take() == other, "there was one by that name"
    units.release(unit)
    assert units.take() == unit
    assert b"a" not in units


@pytest.mark.parametrize(("batch_tokens", "interval"), [(1, INTERVAL), (256, INTERVAL), (4096, 1024), (4200, 1024)])
def test_a_chat_alone_can_use_a_quarter_of_a_steps_rows(batch_tokens: int, interval: int) -> None:
    assert interval_of(batch_tokens) == interval
