"""The test knobs of copies: which park fails, when a copy is reported, what a bad value gets."""

from collections.abc import Callable

import pytest

from parkway.errors import BadSetting, NoRoom
from parkway.memory.copies import Copies
from parkway.memory.faults import faulty
from parkway.plan.copies import Copy, Owner


class Done:
    """`Copies` that have landed when they have been submitted."""

    pages = 3
    page_bytes = 1
    held_bytes = 0

    def __init__(self) -> None:
        self.waits = 0
        self._landed: list[Copy] = []

    def submit(self, copy: Copy) -> None:
        self.held_bytes += 1
        self._landed.append(copy)

    def advance(self) -> None:
        pass

    def landed(self) -> list[Copy]:
        landed, self._landed = self._landed, []
        return landed

    def wait(self) -> None:
        assert self._landed
        self.waits += 1

    def make_ready(self) -> None:
        pass

    def reserve(self) -> None:
        pass

    def release(self) -> None:
        raise AssertionError("nobody asked for that")

    def drain(self) -> list[Copy]:
        return self.landed()


class Clock:
    """Sleeping sets it forward, a little less than it should."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += max(seconds * 0.9, 1e-6)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slow(clock: Clock) -> Copies:
    return faulty(Done(), {"PARKWAY_PREEMPT_SLOW_COPY_MS": "50"}, clock, clock.sleep)


def park(id: int, owner: Owner = Owner.PARK) -> Copy:
    return Copy(id, owner, (0,), (0,))


@pytest.mark.parametrize("environment", [{}, {"PARKWAY_PREEMPT_FAIL_SAVE": "0", "PARKWAY_PREEMPT_SLOW_COPY_MS": "0"}])
def test_without_a_knob_the_copies_are_the_same(environment: dict[str, str]) -> None:
    copies = Done()
    assert faulty(copies, environment) is copies


@pytest.mark.parametrize("name", ["PARKWAY_PREEMPT_FAIL_SAVE", "PARKWAY_PREEMPT_SLOW_COPY_MS"])
@pytest.mark.parametrize("value", ["", "-1", "1.5", "two", "²"])
def test_a_bad_value_is_told_by_its_variable(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=f"^{name}: must be a whole number") as raised:
        faulty(Done(), {name: value})
    assert raised.value.name == name


def test_only_that_park_fails() -> None:
    copies = faulty(Done(), {"PARKWAY_PREEMPT_FAIL_SAVE": "2"})
    owners = [Owner.PARK, Owner.RESTORE, Owner.SAVE_AHEAD, Owner.PARK, Owner.PARK]
    failed = [id for id, owner in enumerate(owners) if raises_no_room(copies.submit, park(id, owner))]
    assert failed == [3]
    assert [copy.id for copy in copies.landed()] == [0, 1, 2, 4]
    assert (copies.pages, copies.held_bytes) == (3, 4)


def raises_no_room(submit: Callable[[Copy], None], copy: Copy) -> bool:
    try:
        submit(copy)
    except NoRoom:
        return True
    return False


def test_a_copy_is_reported_no_earlier_than_that(slow: Copies, clock: Clock) -> None:
    slow.submit(park(1))
    clock.now += 0.03
    slow.submit(park(2, Owner.RESTORE))
    reported = []
    for _ in range(5):
        reported.append([copy.id for copy in slow.landed()])
        clock.now += 0.015
    assert reported == [[], [], [1], [], [2]]
    assert (slow.pages, slow.held_bytes) == (3, 2)


def test_waiting_lasts_until_one_is_reported(slow: Copies, clock: Clock) -> None:
    slow.submit(park(1))
    clock.now += 0.03
    slow.submit(park(2))
    for id, at in ((1, 100.05), (2, 100.08)):
        while not (landed := slow.landed()):
            before = clock.now
            slow.wait()
            assert clock.now - before == pytest.approx(min(0.01, at - before), abs=1e-5)
        assert clock.now == pytest.approx(at, abs=1e-5)
        assert [copy.id for copy in landed] == [id]


def test_drain_lasts_until_all_are_reported(slow: Copies, clock: Clock) -> None:
    slow.submit(park(1))
    slow.submit(park(2))
    assert slow.landed() == []
    assert slow.drain() == [park(1), park(2)]
    assert clock.now >= 100.05
    assert slow.drain() == slow.landed() == []


def test_both_knobs_at_once(clock: Clock) -> None:
    environment = {"PARKWAY_PREEMPT_FAIL_SAVE": "1", "PARKWAY_PREEMPT_SLOW_COPY_MS": "50"}
    copies = faulty(Done(), environment, clock, clock.sleep)
    assert raises_no_room(copies.submit, park(1))
    copies.submit(park(2))
    assert copies.landed() == []
    assert copies.drain() == [park(2)]
