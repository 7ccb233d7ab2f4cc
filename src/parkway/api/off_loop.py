"""Work over what a client sent, off the event loop where that is large. Knows no text and no request."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

LARGE = 1 << 14
"""Characters, or items of lists and mappings: more take longer than waking a thread does."""

P = ParamSpec("P")
R = TypeVar("R")


async def off_loop(asked: Any, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """What the function makes of its arguments, of which `asked` is what its time grows with. In a thread if that is
    large, so that the loop answers others meanwhile."""
    if is_large(asked):
        return await asyncio.to_thread(function, *arguments, **named)
    return function(*arguments, **named)


def is_large(asked: Any) -> bool:
    """Looks no further than it must: this runs on the loop."""
    size, left = 0, [asked]
    while left and size <= LARGE:
        each = left.pop()
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, Mapping):
            size += len(each)
            left += (*each.keys(), *each.values()) if size <= LARGE else ()
        elif isinstance(each, list | tuple):
            size += len(each)
            left += each if size <= LARGE else ()
    return size > LARGE
