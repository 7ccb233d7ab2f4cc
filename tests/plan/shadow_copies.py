"""Copies under way: done at any moment between their plan and their landing, behind all steps planned before."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from parkway.plan.copies import Copy, Owner
from parkway.plan.slot import Slot

from .shadow_pool import ShadowPool


@dataclass(eq=False)
class Luck:
    """How copies fare. `soon`: they land within a few steps; else they may take for ever. `refused`: how often there is
    no memory on the host."""

    random: Random
    soon: bool = True
    refused: float = 0.0


@dataclass(eq=False)
class Open:
    copy: Copy
    age: int = 0
    stamps: list[float] | None = None
    """When its pages had been written last, once it has been done."""


class ShadowCopies:
    """`device` and `host` are the shadows of both pools."""

    def __init__(self, device: ShadowPool, host: ShadowPool) -> None:
        self.device = device
        self.host = host
        self.open: list[Open] = []
        self.seen = 0
        self.luck = Luck(Random(0))

    def submit(self, copies: tuple[Copy, ...]) -> None:
        """Behind all steps that have run, before the one that is planned with them; some are done at once."""
        for copy in copies:
            assert copy.id == self.seen, "copies are not numbered in their order"
            assert copy.sources, "nothing is to be copied"
            self.seen += 1
            self._target(copy).await_copy(copy.targets)
            self.open.append(Open(copy))
        self.do_some()

    def do_some(self) -> None:
        for each in self.open:
            if each.stamps is None and self.luck.random.random() < 0.5:
                self._do(each)

    def refuse_some(self, copies: tuple[Copy, ...]) -> list[int]:
        """Ids of copies to the host for which there is no memory; they have never been begun."""
        chosen = [copy for copy in copies if copy.to_host and self.luck.random.random() < self.luck.refused]
        self.open = [each for each in self.open if each.copy not in chosen]
        return [copy.id for copy in chosen]

    def chosen_to_land(self) -> list[Open]:
        """Copies that land now, in any order."""
        self.do_some()
        chosen = [each for each in self.open if self._lands(each)]
        self.luck.random.shuffle(chosen)
        return chosen

    def land(self, each: Open) -> None:
        if each.stamps is None:
            self._do(each)
        assert each.stamps is not None
        for page, stamp in zip(each.copy.targets, each.stamps, strict=True):
            self._target(each.copy).last_written[page] = stamp
        self.open.remove(each)

    def check_books(self, slots: Iterable[Slot]) -> None:
        """Both pools say what chats and open copies hold, and where a copy writes nobody else is."""
        slots, (pins, host_pins) = list(slots), self.pins()
        holders = Counter(page for slot in slots for page in slot.pages)
        host_holders = Counter([page for slot in slots for page in slot.host] + self.saved_ahead())
        self.device.check_counts(holders, pins)
        self.host.check_counts(host_holders, host_pins)
        for each in self.open:
            pool, held = (self.host, host_holders) if each.copy.to_host else (self.device, holders)
            for page in each.copy.targets:
                assert held[page] <= 1, "a page is copied to that two hold"
                assert pool.pool._pins[page] == 1, "two copies touch a page that one of them writes"
                assert page not in pool.pool._index, "a page is named before its copy has landed"

    def pins(self) -> tuple[Counter[int], Counter[int]]:
        """How many open copies touch each page, on the device and on the host."""
        device, host = Counter[int](), Counter[int]()
        for each in self.open:
            (host if each.copy.from_host else device).update(each.copy.sources)
            (host if each.copy.to_host else device).update(each.copy.targets)
        return device, host

    def saved_ahead(self) -> list[int]:
        """Host pages that nobody but the copy holds."""
        return [page for each in self.open if each.copy.owner is Owner.SAVE_AHEAD for page in each.copy.targets]

    def _lands(self, each: Open) -> bool:
        each.age += 1
        return self.luck.random.random() < (0.5 if self.luck.soon else 0.05) or (self.luck.soon and each.age > 2)

    def _target(self, copy: Copy) -> ShadowPool:
        return self.host if copy.to_host else self.device

    def _do(self, each: Open) -> None:
        source, target = self.host if each.copy.from_host else self.device, self._target(each.copy)
        each.stamps = [source.last_written[page] for page in each.copy.sources]
        for page, to in zip(each.copy.sources, each.copy.targets, strict=True):
            target.rows[to] = list(source.rows[page])
