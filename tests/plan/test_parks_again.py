"""Rare ends of parks, in single scenes: replays, pages that are found again, refused memory, the last resort."""

from parkway.plan.copies import Owner
from parkway.plan.limits import Knobs
from parkway.plan.pages import PagePool
from parkway.plan.parking import Parking
from parkway.plan.slot import Slot
from parkway.request import Preempt

from .scene import Scene, limits, request


def parked_by_hand(scene: Scene, number: int = 0) -> None:
    chat = next(slot for slot in scene.planner._chats.running if slot.request.id == number)
    scene.planner._room._park(chat, "no room")


def state(scene: Scene, number: int = 0) -> str:
    return next(view.state for view in scene.planner.slots() if view.request_id == number)


def test_a_replay_up_to_the_last_token_is_followed_by_decoding() -> None:
    """Of its 60 tokens 59 are computed, and computed again in chunks of 59."""
    scene = Scene(limits(host_pages=0, chunk_tokens=59), request(0, 57))
    while scene.tokens.get(0, 0) < 3:
        scene.step()
    parked_by_hand(scene)
    assert [chunk.end for chunk in scene.step().chunks] == [59]
    assert state(scene) == "decode"


def test_what_is_found_again_is_not_said_to_be_recomputed() -> None:
    """It is dropped behind its first page, which nobody takes meanwhile."""
    scene = Scene(limits(host_pages=0, prefix_cache=True, chunk_tokens=64), request(0, 100))
    scene.step()
    parked_by_hand(scene)
    (chunk,) = scene.step().chunks
    assert (chunk.start, scene.of(0)) == (64, ["preempted", "resumed"])


def test_what_is_found_in_part_is_said_to_be_recomputed() -> None:
    scene = Scene(limits(host_pages=0, prefix_cache=True, chunk_tokens=70), request(0, 100))
    scene.step()
    parked_by_hand(scene)
    assert [chunk.start for chunk in scene.step().chunks] == [64]
    assert scene.of(0) == ["preempted", "resumed", "recomputed"]


def test_a_replay_that_is_parked_again_is_the_same_park() -> None:
    """Its client has not heard of a return: parks less returns are the chats that are out or replay."""
    scene = Scene(limits(host_pages=0, chunk_tokens=10), request(0, 100))
    while not scene.tokens.get(0):
        scene.step()
    parked_by_hand(scene)
    scene.step()
    assert state(scene) == "replaying"
    parked_by_hand(scene)
    scene.hear()
    assert (scene.planner.parks, scene.planner.resumes, scene.planner.recomputes) == (1, 0, 1)
    while state(scene) != "decode":
        scene.step()
    assert scene.of(0) == ["preempted", "resumed", "recomputed"]
    scene.drain()
    waited = next(notice.waited_ms for _, _, notice in scene.told if notice.state == "resumed")
    assert scene.planner.take_record(0) == Preempt(parks=1, recomputes=1, parked_ms=waited)


def sealed(pool: PagePool, pages: int) -> Slot:
    """A chat of so many sealed pages."""
    slot = Slot.waiting(request(0, 64 * pages), n_ctx=1024)
    slot.enter(pool.take(pages) or (), now=0.0)
    for page, number in enumerate(slot.pages):
        pool.seal(number, slot.name(page))
    return slot


def test_names_of_pages_that_are_being_saved_ahead_are_forgotten_too() -> None:
    pool = PagePool(4)
    parking = Parking(pool, 4, named=True, forget=True)
    slot = sealed(pool, 2)
    assert parking.save_ahead(slot)
    parking.drop(slot)
    parking.landed(parking.take_planned()[0].id)
    assert [pool.find(slot.name(page)) for page in (0, 1)] == [None, None]


def test_after_a_refusal_host_pages_that_have_memory_are_taken_first() -> None:
    """Two hold pages that nobody needs; the other eighteen have no memory yet, and get none."""
    scene = Scene(limits(prefix_cache=True, knobs=Knobs(forget=True)), request(0, 128, max_tokens=5))
    scene.step()
    parked_by_hand(scene)
    scene.drain()
    scene.planner.arrive(request(1, 100))
    scene.step()
    parked_by_hand(scene, 1)
    scene.lands = False
    scene.step()
    scene.open = []
    scene.planner.refused(scene.copies[-1].id)
    scene.lands = True
    while state(scene, 1) != "decode":
        scene.step()
    parked_by_hand(scene, 1)
    scene.step()
    first, refused, last = [copy.targets for copy in scene.copies if copy.owner is Owner.PARK]
    assert (first[:2], refused, sorted(last)) == ((0, 1), (2, 3), [0, 1])
    scene.drain()


def test_the_last_resort_spares_who_holds_no_page() -> None:
    """2, a long prompt, takes the rows that decoders leave over, so 3 gets none; it would free nothing."""
    sizes = {"pages": 14, "n_ctx": 600, "batch_tokens": 4, "host_pages": 0, "knobs": Knobs(look_ahead=False)}
    prompts = (60, 60, 400, 20)
    scene = Scene(limits(**sizes), *(request(number, tokens) for number, tokens in enumerate(prompts)))
    while not scene.out:
        scene.step()
    assert scene.out == [1]
    scene.drain()
