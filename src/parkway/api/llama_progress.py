"""How far the prompts of a stream have got, as the views of the slots tell it. Knows no form."""

import asyncio
from collections.abc import Mapping
from time import perf_counter

from parkway.api.answer import Answer
from parkway.api.choice import Choice, Delta, Progress
from parkway.engine.door import Door
from parkway.report import SlotView

POLL_SECONDS = 0.1
"""As often as the engine tells about its slots."""


class PromptProgress:
    """Puts deltas with progress between those of an answer, until all of its prompts have been computed.

    The last of each prompt comes right before its first token.
    """

    def __init__(self, door: Door, answer: Answer) -> None:
        self._door = door
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._open = dict(enumerate(answer.choices))
        self._told: dict[int, tuple[float, int]] = {}
        answer.beside = self._take
        self._timer = self._loop.call_later(POLL_SECONDS, self._look)

    def _look(self) -> None:
        if self._open and self._answer.open_chats:
            self._answer.nudge()
            self._timer = self._loop.call_later(POLL_SECONDS, self._look)

    def _take(self) -> list[Delta]:
        views = {view.request_id: view for view in self._door.view.slots}
        found = [self._delta(index, choice, views) for index, choice in list(self._open.items())]
        if not self._open:
            self._answer.beside = None
            self._timer.cancel()
        return [delta for delta in found if delta is not None]

    def _delta(self, index: int, choice: Choice, views: Mapping[int | None, SlotView]) -> Delta | None:
        request, now = choice.request, perf_counter()
        total = len(request.prompt)
        if choice.first_token_at or choice.finish_reason:
            del self._open[index]
            since, _ = self._told.get(index, (self._answer.began_at, 0))
            return _told(index, Progress(total, choice.cached_tokens, total, (now - since) * 1000))
        view = views.get(request.id)
        if view is None or view.state != "prefill":
            return None
        since, before = self._told.get(index, (now, -1))
        done = min(view.computed, total)
        if done <= before:
            return None
        self._told[index] = since, done
        return _told(index, Progress(total, view.cached, done, (now - since) * 1000))


def _told(index: int, progress: Progress) -> Delta:
    return Delta(index, "", [], None, progress=progress)
