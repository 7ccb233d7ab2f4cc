"""Who is parked, and who comes in first. Pure choice: knows the chats and the pool, changes neither."""

from collections.abc import Callable, Sequence

from parkway.plan.budget import gain
from parkway.plan.limits import Knobs, Limits, Pace, Victim
from parkway.plan.pages import PagePool
from parkway.plan.slot import Slot, State

STARVED = 3
"""A chat that was parked so often is passed over while there is another."""
QUANTUM_TOKENS = 16
"""A chat that came back computes so many tokens at least before it has to make room for another in turn."""
AGEING = 30.0
"""Seconds of waiting that one step of priority is worth."""

_KNOBS: dict[Victim, Callable[[Slot], int]] = {
    "smallest": lambda slot: slot.length,
    "largest": lambda slot: -slot.length,
    "youngest": lambda slot: -slot.request.id,
    "oldest": lambda slot: slot.request.id,
}


def leader(running: Sequence[Slot]) -> Slot | None:
    """The chat with most tokens, which will be the first to give its pages back for good."""
    return max(running, key=lambda slot: slot.length, default=None)


def victim(
    running: Sequence[Slot],
    pool: PagePool,
    pace: Pace,
    knobs: Knobs,
    *,
    exempt: Slot | None,
    missing: int,
    tokens: int,
    misses: Callable[[Slot], int],
) -> Slot | None:
    """Who is to make room for `missing` pages; None if nobody can. `misses`: pages that parking a chat would copy.

    Not the leader while another will do; not a starved chat while there is another, nor one that has only just come
    back; then one that frees enough with the least to copy, else the one that frees most.
    """
    first = leader(running)
    candidates = [slot for slot in running if slot is not exempt and not slot.full]
    others = [slot for slot in candidates if slot is not first]
    by_knob = _KNOBS.get(knobs.victim)

    def order(slot: Slot) -> tuple[float, ...]:
        starved = slot.parks >= STARVED or slot.state is State.REPLAYING  # it would have computed again for nothing
        fresh = pace.now - slot.entered < 4 * pace.switch
        if by_knob:
            return starved, by_knob(slot)
        freed = gain(slot, pool, tokens)
        if freed < missing:
            return starved, fresh, 1, -freed, slot.length
        return starved, fresh, 0, misses(slot), slot.length

    return min(others or (candidates if len(running) > 1 and exempt in running else ()), key=order, default=None)


def in_turn(
    running: Sequence[Slot],
    pool: PagePool,
    pace: Pace,
    quantum: float,
    *,
    exempt: Slot | None,
    missing: int,
    tokens: int,
) -> Slot | None:
    """Who has stayed long enough to make room for one that has waited; None if nobody.

    The smallest that suffices, else the largest: the leader too, since nobody's turn lasts for ever. Nobody who still
    computes again what it had: it would have come in for nothing.
    """
    done = [
        slot
        for slot in running
        if slot is not exempt
        and not slot.full
        and slot.state is not State.REPLAYING
        and pace.now - slot.entered >= quantum
        and slot.computed - slot.entered_at >= QUANTUM_TOKENS
    ]
    enough = [slot for slot in done if gain(slot, pool, tokens) >= missing]
    return min(enough, key=lambda slot: slot.length) if enough else leader(done)


def comes_behind(slot: Slot, head: Slot, limits: Limits, now: float) -> bool:
    """Whether a chat that was parked now would come back behind the head of the line: else that is no turn."""
    if limits.resume == "pass":
        return slot.parks < head.parks
    return place(slot.request.priority, now) >= place(head.request.priority, head.since)


def line(waiting: Sequence[Slot], limits: Limits) -> list[Slot]:
    """Who waits for room, parked or new, the first to come in first: by how long it has waited, and by priority. Where
    these make two equal, one that was parked is first, then who began to wait first.

    Nobody's place depends on what the time is: who stands behind another stays behind it. "pass" instead has those
    first that were parked most often.
    """

    def order(slot: Slot) -> tuple[float, ...]:
        if limits.resume == "pass":
            return -slot.parks, slot.since
        return place(slot.request.priority, slot.since), not slot.parks, slot.since

    return sorted(waiting, key=order)


def place(priority: int, since: float) -> float:
    """Who has the lower one is first. Nobody passes another by waiting, since both wait."""
    return since + AGEING * priority
