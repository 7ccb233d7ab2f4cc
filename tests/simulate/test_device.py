"""The simulated device: when steps end, and how copies are begun, paced and landed beside them."""

from parkway.plan.copies import Copy, Owner
from parkway.plan.step import Chunk
from parkway.request import Request, SamplingParams
from simulate.costs import Costs
from simulate.device import Device

COSTS = Costs(step=1.0, row=0.25, token=0.125, page=0.5, step_pages=2, batch_tokens=64)
REQUEST = Request(id=0, prompt=[1], sampling=SamplingParams(), seed=0)


def chunk(tokens: int) -> Chunk:
    return Chunk(0, REQUEST, 0, (1,) * tokens, (0,), samples=True)


def copy(number: int, owner: Owner, pages: int) -> Copy:
    return Copy(number, owner, tuple(range(pages)), tuple(range(pages)))


def test_steps_run_one_after_another() -> None:
    device = Device(COSTS)
    device.launch((chunk(1), chunk(1), chunk(4)), 10.0)
    device.launch((chunk(1),), 10.5)
    assert [device.land()[0], device.land()[0]] == [12.0, 13.25]
    device.launch((chunk(1),), 20.0)
    assert device.land()[0] == 21.25


def test_a_step_begins_some_pages_in_the_order_of_submission() -> None:
    device = Device(COSTS)
    first, second = copy(0, Owner.PARK, 3), copy(1, Owner.PARK, 1)
    device.submit((first, second), 0.0)
    device.launch((chunk(1),), 0.0)
    assert device.landed(100.0) == []
    device.launch((chunk(1),), 1.25)  # the third page and the second copy
    assert device.landed(1.25) == []
    assert device.landed(1.5) == [first]
    assert device.landed(2.0) == [second]


def test_a_copy_waits_for_the_step_that_was_launched_before() -> None:
    device = Device(COSTS)
    device.launch((chunk(1),), 0.0)
    device.submit((copy(0, Owner.PARK, 2),), 0.0)
    assert device.next_landing() == 1.25 + 1.0


def test_two_directions_share_a_single_lane_only() -> None:
    for lanes, landings in ((2, [1.0, 1.0]), (1, [1.0, 2.0])):
        device = Device(Costs(step=1, row=0, token=0, page=0.5, step_pages=9, batch_tokens=64, lanes=lanes))
        out, back = copy(0, Owner.PARK, 2), copy(1, Owner.RESTORE, 2)
        device.submit((out, back), 0.0)
        assert device.next_landing() == landings[0]
        assert device.landed(landings[0]) == ([out] if lanes == 1 else [out, back])
        if lanes == 1:
            assert device.next_landing() == landings[1]
