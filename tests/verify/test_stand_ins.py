"""Copies that take no time, on a machine where they come late."""

from parkway.memory.copies import CopiesAround
from parkway.plan.copies import Copy, Owner
from parkway.verify.stand_ins import LATEST, Timeless


class Late(CopiesAround):
    """Copies that land only for whoever waits for them."""

    pages, page_bytes = 1, 1

    def __init__(self) -> None:
        self._submitted: list[Copy] = []

    def submit(self, copy: Copy) -> None:
        self._submitted.append(copy)

    def landed(self) -> list[Copy]:
        return []

    def drain(self) -> list[Copy]:
        done, self._submitted = self._submitted, []
        return done


def test_a_copy_that_is_late_is_waited_for_before_a_prompt_is_over() -> None:
    copies = Timeless(Late())
    before = copies.clock()
    for number in range(3):
        copy = Copy(number, Owner.PARK, (0,), (0,))
        copies.submit(copy)
        assert [copies.landed() for _ in range(LATEST)] == [[]] * (LATEST - 1) + [[copy]]
        assert copies.clock() == before + 1 + number


def test_the_clock_stands_while_something_is_copied() -> None:
    copies = Timeless(Late())
    before = copies.clock()
    copies.submit(Copy(0, Owner.RESTORE, (0,), (0,)))
    assert copies.clock() == copies.clock() == before
    copies.drain()
    assert copies.clock() > before
