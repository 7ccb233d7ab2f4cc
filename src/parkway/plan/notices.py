"""What clients are told about parks: one `preempted` for each, one `resumed` for each return, in turn."""

from parkway.plan.slot import Slot
from parkway.request import Notice


class Notices:
    """Collects them, oldest first, with the id of the request that each is for."""

    def __init__(self) -> None:
        self._untold: list[tuple[int, Notice]] = []

    def take(self) -> list[tuple[int, Notice]]:
        """Those that nobody has taken yet."""
        untold, self._untold = self._untold, []
        return untold

    def left(self, slot: Slot, ahead: int) -> None:
        """A chat is out, and nothing of it is in flight: its last token before the park has been told."""
        assert not slot.announced, f"slot {slot.index}: its client knows of the park already"
        assert not slot.flying, f"slot {slot.index}: a token of its own is still on its way"
        slot.announced = True
        self._untold.append((slot.request.id, Notice("preempted", ahead)))

    def returned(self, slot: Slot, now: float) -> None:
        """A chat can go on where it was parked."""
        assert slot.announced, f"slot {slot.index}: its client does not know that it was out"
        slot.announced = False
        seconds = now - slot.since
        slot.parked_seconds += seconds
        states = ("resumed", "recomputed") if slot.replayed else ("resumed",)
        for state in states:
            self._untold.append((slot.request.id, Notice(state, waited_ms=round(1000 * seconds))))
        slot.replayed = 0
