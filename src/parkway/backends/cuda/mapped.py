"""A step's words on their way in and its results on their way out, by kernels that read and write pinned host memory.

The device sees that memory at addresses of its own. A copy would need a copy engine, and those work in the order in
which they were asked: behind the pages of a parked chat, a few words would wait for milliseconds. Where there is no GPU
the memory is plain, and the interpreter runs the kernels.

What the host has written before a launch is seen by its kernel, and what a kernel has written is seen by the host once
an event behind it has happened. So the host may change neither end in between.
"""

import torch
import triton
import triton.language as tl

PROGRAM_WORDS = 1024
"""A program asks for so many before the first has come over the bus."""
BLOCK = tl.constexpr(PROGRAM_WORDS)


@triton.jit(do_not_specialize=["count", "changes"])
def send_kernel(words_ptr, sent_ptr, count, tables_ptr, places_ptr, pages_ptr, changes):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    some, changed = lanes < count, lanes < changes
    words = tl.load(sent_ptr + lanes, mask=some)
    places = tl.load(places_ptr + lanes, mask=changed, other=0)
    pages = tl.load(pages_ptr + lanes, mask=changed)
    tl.store(words_ptr + lanes, words, mask=some)
    tl.store(tables_ptr + places, pages, mask=changed)


@triton.jit(do_not_specialize=["count"])
def fetch_kernel(fetched_ptr, results_ptr, count):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    some = lanes < count
    tl.store(fetched_ptr + lanes, tl.load(results_ptr + lanes, mask=some), mask=some)


def send(
    words: torch.Tensor,
    sent: torch.Tensor,
    count: int,
    tables: torch.Tensor,
    places: torch.Tensor,
    pages: torch.Tensor,
    changes: int,
) -> None:
    """words[:count] = sent[:count], and tables.view(-1)[places[:changes]] = pages[:changes]; all are int32.

    sent, places and pages are pinned; no place is named twice.
    """
    programs = max(_programs(count), _programs(changes))
    send_kernel[(programs,)](words, sent, count, tables, places, pages, changes)


def fetch(fetched: torch.Tensor, results: torch.Tensor, count: int) -> None:
    """The first `count` words of `results` to pinned memory; both int32, in one run. At least one."""
    fetch_kernel[(_programs(count),)](fetched, results, count)


def _programs(words: int) -> int:
    return -(-words // PROGRAM_WORDS)
