"""A fake door that answers as the last message asks: "call fourth" is a call, parked before every fourth token."""

import asyncio
import re
from collections.abc import Callable

from parkway.request import Output, Preempt, Request
from tests.api.anthropic_chats import CALL, THOUGHT
from tests.api.fake import FakeDoor, _Open

ANSWERS = {
    "text": "Grüße aus dem Park, 日本 🌳!",
    "call": f"{THOUGHT}I look.\n{CALL}",
    "json": '{"x": 3, "why": "é"}',
}
PARKED: dict[str, Callable[[int], bool]] = {
    "first": lambda sent: sent == 0,
    "middle": lambda sent: sent == 9,
    "fourth": lambda sent: sent % 4 == 3,
}
DEATH = "the engine process was killed by SIGKILL"
STAYS_AFTER = DIES_AFTER = 5
OUT_SECONDS = 0.004


class ScriptedDoor(FakeDoor):
    """What is neither asked for nor parked is "text". "dies" fails after a few tokens; "stays" never ends."""

    def __init__(self) -> None:
        super().__init__()
        self._back_at: dict[int, float] = {}
        self._parks: dict[int, int] = {}

    def _put(self, opened: _Open, tokens: int) -> None:
        said, request_id = _said(opened.request), opened.request.id
        if opened.sent == 0 and request_id not in self._back_at:
            opened.script[:] = [*_answer(opened.request, said).encode(), opened.script[-1]]
        if self._is_out(opened, said):
            return
        if "stays" in said and opened.sent >= STAYS_AFTER:
            return
        if "dies" in said and opened.sent >= DIES_AFTER:
            del self.open[request_id]
            opened.sink(Output(request_id, finish_reason="error", error=DEATH))
            return
        parks = self._parks.get(request_id, 0)
        self._preempt = Preempt(parks, parks, 4 * parks)
        super()._put(opened, tokens)

    def _is_out(self, opened: _Open, said: list[str]) -> bool:
        """Parks and brings back where the script says so, once before each token."""
        request_id, now = opened.request.id, asyncio.get_running_loop().time()
        parked = self._parks.get(request_id, 0)
        due = sum(PARKED[word](sent) for word in said if word in PARKED for sent in range(opened.sent + 1))
        if parked < due:
            self._parks[request_id] = parked + 1
            self._back_at[request_id] = now + OUT_SECONDS
            self.notify("preempted", request_id, ahead=1)
        if now < self._back_at.get(request_id, 0):
            return True
        if self._back_at.get(request_id):
            self.notify("resumed", request_id, waited_ms=4)
            self.notify("recomputed", request_id)
            self._back_at[request_id] = 0
        return False


def parks_of(what: str, when: str) -> int:
    """How often the chat "what when" is parked."""
    tokens = len(ANSWERS[what].encode()) + 1
    return sum(map(PARKED[when], range(tokens))) if when in PARKED else 0


def _said(request: Request) -> list[str]:
    return _prompt(request).rpartition("<user>")[2].partition("<assistant>")[0].split()


def _answer(request: Request, said: list[str]) -> str:
    for word in said:
        if word in ANSWERS:
            return ANSWERS[word]
    if tool := re.match(r"\+(\w+)", _prompt(request)):
        return CALL.replace("dir", tool[1])
    return ANSWERS["text"]


def _prompt(request: Request) -> str:
    return bytes(id for id in request.prompt if id < 256).decode(errors="replace")
