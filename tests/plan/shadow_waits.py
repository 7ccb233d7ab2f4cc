"""Fairness: nobody waits for room, parked or new, longer than the turns of those who stood before it and its own."""

from collections.abc import Iterable

from parkway.plan.limits import FOREVER, Limits, Pace
from parkway.plan.step import PAGE_TOKENS

from .shadow_chat import Chat

SLACK = 40
"""Steps that a turn may take beside its quantum: until tokens are enough, copies have landed, somebody has gone."""
LEAST_ROWS = 16
"""Of a chat in a step; with fewer a turn takes longer than this checks."""


class Waits:
    """The line as it grows. `seconds`: of the clock, per step. `bounded`: whether nobody waits longer than in turn."""

    def __init__(self, limits: Limits, seconds: float) -> None:
        knobs, rows = limits.knobs, min(limits.batch_tokens - limits.slots, limits.chunk_tokens or PAGE_TOKENS)
        in_turn = limits.quantum < FOREVER and limits.resume == "head" and limits.parks
        self.bounded = in_turn and knobs.look_ahead and not knobs.exempt_first and rows >= LEAST_ROWS
        self._quantum = limits.quantum
        self._seconds = seconds

    def admit(self, new: list[Chat], away: list[Chat], now: float) -> None:
        """Those for whom there is a slot stand in the line from now on."""
        for chat in new:
            if chat.since is None:
                self.begin(chat, away + new, now)

    def begin(self, chat: Chat, line: Iterable[Chat], now: float) -> None:
        chat.since = chat.clean = now
        chat.before = sum(other.since is not None for other in line if other is not chat)
        self.bounded = self.bounded and not chat.request.priority

    def check(self, line: Iterable[Chat], pace: Pace) -> None:
        if self.bounded:
            turn = max(self._quantum, 4 * pace.switch) + SLACK * self._seconds
            for chat in line:
                waited = 0 if chat.since is None else pace.now - max(chat.since, chat.clean)
                assert waited <= (chat.before + 1) * turn, "somebody waits longer than its turn"
