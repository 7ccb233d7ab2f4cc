"""Which sealed pages hold which tokens. A page is named by the chain of all tokens up to its end, so that a page is
found only behind exactly what it was computed behind. Knows no chat and no pool."""

from array import array
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

KEY_BYTES = 16
"""Of a page's name: two of 2^40 pages would share one with a chance of 2^-48."""


def chain(before: bytes, tokens: Sequence[int]) -> bytes:
    """The name of a page of these tokens behind the page named `before` (b"" for none)."""
    return blake2b(before + array("i", tokens).tobytes(), digest_size=KEY_BYTES).digest()


class PrefixIndex:
    """Pages by name and names by page. A name can have followers: pages whose tokens are behind those of that name."""

    def __init__(self) -> None:
        self._pages: dict[bytes, int] = {}
        self._names: dict[int, tuple[bytes, bytes]] = {}
        """Of each page its own, and that of the page before it."""
        self._followers = Counter[bytes]()

    def __contains__(self, page: int) -> bool:
        return page in self._names

    def find(self, name: bytes) -> int | None:
        return self._pages.get(name)

    def followed(self, name: bytes) -> bool:
        """Whether a page that is found follows one of that name."""
        return name in self._followers

    def add(self, page: int, name: bytes, before: bytes = b"") -> None:
        """From now on the page is found by its name, unless another is: two chats may have computed the same. `before`:
        the name of the page before it, if there is one."""
        if name not in self._pages:
            assert page not in self._names, f"page {page} has a name already"
            self._pages[name] = page
            self._names[page] = name, before
            self._followers[before] += 1

    def drop(self, page: int) -> None:
        """Its tokens are about to be overwritten."""
        name, before = self._names.pop(page)
        del self._pages[name]
        self._followers[before] -= 1
        if not self._followers[before]:
            del self._followers[before]
