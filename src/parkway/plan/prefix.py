"""Which sealed pages hold which tokens. A page is named by the chain of all tokens up to its end, so that a page is
found only behind exactly what it was computed behind. Knows no chat and no pool."""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

KEY_BYTES = 16
"""Of a page's name: two of 2^40 pages would share one with a chance of 2^-48."""


def chain(before: bytes, tokens: Sequence[int]) -> bytes:
    """The name of a page of these tokens behind the page named `before` (b"" for none)."""
    return blake2b(before + array("i", tokens).tobytes(), digest_size=KEY_BYTES).digest()


class PrefixIndex:
    """Pages by name and names by page."""

    def __init__(self) -> None:
        self._pages: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}

    def __contains__(self, page: int) -> bool:
        return page in self._names

    def find(self, name: bytes) -> int | None:
        return self._pages.get(name)

    def add(self, page: int, name: bytes) -> None:
        """From now on the page is found by its name, unless another is: two chats may have computed the same."""
        if name not in self._pages:
            assert page not in self._names, f"page {page} has a name already"
            self._pages[name] = page
            self._names[page] = name

    def drop(self, page: int) -> None:
        """Its tokens are about to be overwritten."""
        del self._pages[self._names.pop(page)]
