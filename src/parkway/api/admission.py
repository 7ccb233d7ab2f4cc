"""How many chats may be open, and when whoever is refused should come back. Knows no HTTP and no engine."""

import math
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic

from parkway.errors import Overloaded

_WINDOW_SECONDS = 60.0
_SAMPLE_SECONDS = 1.0
_LONGEST_SECONDS = 600


class Admission:
    """There is room for `slots` chats and `max_queue` that wait.

    Once it is taken, a client still gets in that has less than its equal part, so that nobody's requests keep others
    out; twice the room is never exceeded. A request with more chats than there is room comes in when nobody is there.
    """

    def __init__(self, slots: int, max_queue: int, clock: Callable[[], float] = monotonic) -> None:
        self._slots = slots
        self._room = slots + max_queue
        self._pace = _Pace(clock)

    def admit(self, client: str, chats: int, open_chats: Counter[str], ended: int) -> None:
        """`open_chats`: how many each client has. `ended`: how many ever have. Raises Overloaded."""
        total = open_chats.total()
        self._pace.look(ended, full=total >= self._slots)
        missing = total + chats - self._room
        if missing <= 0 or not total:
            return
        part = max(1, self._room // len(open_chats.keys() | {client}))
        if open_chats[client] + chats <= part and total + chats <= 2 * self._room:
            return
        seconds = min(max(math.ceil(missing * self._pace.seconds(ended)), 1), _LONGEST_SECONDS)
        message = f"{total} chats are open or wait, and there is room for {self._room}; try again in {seconds} s"
        raise Overloaded(message, seconds)


class _Pace:
    """How fast chats end while all slots are taken, over the last minute of that."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def look(self, ended: int, *, full: bool) -> None:
        now, seen = self._clock(), self._seen
        if not full:
            seen.clear()
        if not seen or now - seen[-1][0] >= _SAMPLE_SECONDS:
            seen.append((now, ended))
        while len(seen) > 1 and now - seen[1][0] >= _WINDOW_SECONDS:
            seen.popleft()

    def seconds(self, ended: int) -> float:
        """From one end to the next; where none has been seen, as long as nothing has."""
        since, before = self._seen[0]
        return (self._clock() - since) / max(ended - before, 1)
