"""Carries out the planner's copies and tells what came of them: landed, refused, how long they took."""

import logging
from collections.abc import Iterable
from time import sleep

from parkway.engine.tallies import Pacer, Tally
from parkway.errors import NoRoom
from parkway.memory.copies import Copies
from parkway.plan.copies import Copy, Owner
from parkway.plan.planner import Planner
from parkway.request import Notice

FEW_PAGES = 8
"""Copies that may be waited for."""
POLL_SECONDS = 0.00005

logger = logging.getLogger(__name__)


class Parks:
    """Between a planner and the copies of its pages."""

    def __init__(self, planner: Planner, copies: Copies, pacer: Pacer) -> None:
        self.park, self.restore, self.wait = Tally(), Tally(), Tally()
        self._planner = planner
        self._copies = copies
        self._pacer = pacer
        self._begun: dict[int, tuple[float, int]] = {}
        """When each open copy was submitted, and how many pages it has."""

    @property
    def parked_bytes(self) -> int:
        return self._planner.host_pages_used * self._copies.page_bytes

    @property
    def held_bytes(self) -> int:
        return self._copies.held_bytes

    def begin(self, copies: Iterable[Copy], now: float) -> None:
        """Submits what was planned. A park that the host has no memory for becomes a park without a copy."""
        for copy in copies:
            try:
                self._copies.submit(copy)
            except NoRoom as error:
                if copy.owner is Owner.PARK:
                    logger.warning("a park was refused, so the chat is computed again: %s", error)
                self._planner.refused(copy.id)
            else:
                self._begun[copy.id] = now, len(copy.sources)
                logger.info("%s issued: %d pages", copy.owner.value, len(copy.sources))

    def advance(self) -> None:
        """Lets copies begin what one step may begin."""
        if self._begun:
            self._copies.advance()

    def settle(self, now: float) -> bool:
        """Tells the planner of the copies that have landed. False if none has."""
        landed = self._copies.landed() if self._begun else []
        for copy in landed:
            self._landed(copy, now)
        return bool(landed)

    def settle_soon(self, now: float, patience: float) -> bool:
        """As `settle`, after waiting for copies of a few pages, so many seconds at most."""
        if not 0 < sum(pages for _, pages in self._begun.values()) <= FEW_PAGES:
            return False
        self._copies.advance()
        settled = False
        for _ in range(int(patience / POLL_SECONDS)):
            sleep(POLL_SECONDS)
            settled |= self.settle(now)
            if not self._begun:
                break
        return settled

    def sleep(self) -> None:
        """Until a copy has landed. Nobody else has anything to do."""
        self._copies.wait()

    def reserve(self) -> None:
        """Parks are near."""
        self._copies.reserve()

    def release(self) -> bool:
        """Gives the host's memory back, once nobody is here. False if there was none."""
        before = self._copies.held_bytes
        if before:
            self._planner.empty_host()
            self._copies.release()
        return self._copies.held_bytes < before

    def drain(self) -> None:
        """Until all copies have landed. Nobody hears of them."""
        self._copies.drain()

    def told(self, request_id: int, notice: Notice) -> None:
        """A client was told."""
        if notice.state == "resumed":
            self.wait.add(notice.waited_ms / 1000)
            logger.info("request %d resumed after %d ms", request_id, notice.waited_ms)
        elif notice.state == "preempted":
            told = request_id, self._planner.why_parked(request_id), self._planner.pages_used, self._planner.waiting
            logger.info("request %d preempted (%s): %d pages are used, %d chats wait", *told)

    def _landed(self, copy: Copy, now: float) -> None:
        seconds = now - self._begun.pop(copy.id)[0]
        self._planner.landed(copy.id, now)
        logger.info("%s completed after %.1f ms: %d pages", copy.owner.value, 1000 * seconds, len(copy.sources))
        if copy.owner is Owner.SAVE_AHEAD:
            return
        (self.park if copy.to_host else self.restore).add(seconds)
        self._pacer.copied(seconds, len(copy.sources), to_host=copy.to_host)
