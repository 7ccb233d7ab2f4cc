"""Copies of pages between the pools, as they are planned. Knows neither what a page holds nor how it is copied."""

from enum import Enum

import msgspec


class Owner(Enum):
    """What a copy is for, and with that from where to where it goes."""

    PARK = "park"  # device to host
    SAVE_AHEAD = "save-ahead"  # device to host, of pages that stay in use
    RESTORE = "restore"  # host to device


class Copy(msgspec.Struct, frozen=True):
    """sources[i] goes to targets[i]: numbers of device or host pages, as the owner says. `id` is the submitter's.

    No step in flight reads or writes what the first `settled` of them touch, so these need not wait for one.
    """

    id: int
    owner: Owner
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    settled: int = 0

    def __post_init__(self) -> None:
        assert len(self.sources) == len(self.targets), f"copy {self.id}: sources and targets don't match"

    @property
    def from_host(self) -> bool:
        return self.owner is Owner.RESTORE

    @property
    def to_host(self) -> bool:
        return not self.from_host
