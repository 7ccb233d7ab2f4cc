"""The sampler: chooses tokens from logits on the device, and reports log-probabilities. No logit goes to the host.

`backends/reference_sampler.py` is the specification. Three kernels run for every step; a row that has what it asks for
returns from the others at once, because a captured graph launches all of them. Everything about a row is a function of
its own logits, orders and edits: sample_row tells why no sum depends on who adds it. A step in which a row has edits
runs others in front.
"""

from functools import partial

import numpy as np
import torch

from parkway.backends.cuda.sample_chain import ROOM, chain_kernel
from parkway.backends.cuda.sample_choice import choice_kernel
from parkway.backends.cuda.sample_edits import NO_IMAGE, adopt_kernel, allow_kernel, move_kernel, tell_kernel
from parkway.backends.cuda.sample_row import BANDS, CHUNK, MAX_TOPS, NOTHING, ORDER_WORDS, RESULT_WORDS
from parkway.backends.cuda.sample_sums import largest_kernel, sums_kernel

ORDER = np.dtype(
    [(name, "<f4") for name in ("temperature", "top_p", "min_p")]
    + [(name, "<i4") for name in ("top_k", "target", "top")]
    + [(name, "<u4") for name in ("seed_low", "seed_high")]
    + [(name, "<i4") for name in ("prompt_index", "choice_index", "position", "slot")]
)
"""A row's orders. `target`: the id to look up, -1 to choose one. `top`: -1 for no log-probability, 0 for the token's
own, n for the n most probable as well. `slot`: whose token this is, -1 for nobody's. A row with a target and top -1
costs nothing."""

RESULT = np.dtype(
    [
        *[("token", "<i4"), ("logprob", "<f4"), ("top_ids", "<i4", MAX_TOPS), ("top_logprobs", "<f4", MAX_TOPS)],
        ("surprise", "<f4"),
    ]
)
"""A row's result; zeros behind what it has asked for. `token` is -1 where the row's edits allow none, -2 where
its largest logit is not finite. `surprise`: of a
token that a chain has chosen, in bits, among those that the chain left; 0 of another."""

assert ORDER.itemsize == 4 * ORDER_WORDS, "the kernels read other orders"
assert RESULT.itemsize == 4 * RESULT_WORDS, "the kernels write other results"

LIST_IDS = 32768
"""Candidates that a row's list holds. A row of which more could matter is looked at as a whole, which takes longer."""
PROGRAMS = 528
"""Programs of a launch, about: four for each multiprocessor. The third kernel has a fourth of them, because its
programs need a multiprocessor each."""
MOVERS = 8
"""Programs that move a row's logits; one takes all that a chat of some thousand tokens has."""


class Sampler:
    """Scratch memory for up to `max_rows` rows of logits over `vocabulary` ids, and the launches."""

    def __init__(self, vocabulary: int, max_rows: int, device: torch.device) -> None:
        self.vocabulary = vocabulary
        self.chunks = -(-vocabulary // CHUNK)
        self.programs = PROGRAMS
        self.list_ids = min(LIST_IDS, vocabulary)
        zeros = partial(torch.zeros, dtype=torch.int64, device=device)
        self._best = torch.full((max_rows,), NOTHING.value, dtype=torch.int64, device=device)
        self._normalisers, self._tables = zeros(max_rows), zeros(max_rows, 2, BANDS.value)
        self._sums, self._tops = zeros(max_rows, self.chunks), zeros(max_rows, 32)
        self._lists = torch.zeros((max_rows, self.list_ids), dtype=torch.int32, device=device)
        self._lengths = torch.zeros((max_rows, 2), dtype=torch.int32, device=device)
        self._edited_orders = torch.zeros((max_rows, ORDER_WORDS), dtype=torch.int32, device=device)
        self._own = torch.full((max_rows,), NO_IMAGE.value, dtype=torch.int32, device=device)
        self._firsts = zeros(max_rows, ROOM.value)
        self._chosen = torch.zeros((max_rows, RESULT_WORDS), dtype=torch.int32, device=device)

    def run(
        self,
        logits: torch.Tensor,
        orders: torch.Tensor,
        last_tokens: torch.Tensor,
        results: torch.Tensor,
        rows: int,
        pdl: int,
    ) -> None:
        """Samples the first `rows` rows of `logits` fp32 [rows, at least vocabulary], as told by `orders` int32
        [rows, ORDER_WORDS], into `results` int32 [rows, RESULT_WORDS].

        A chosen token is also stored to last_tokens[slot], int32 [slots]. `pdl`: launched before the kernel in front
        has ended, and waits for it.
        """
        grid, small_grid = ((self._programs(rows, most), rows) for most in (self.programs, self.programs // 4))
        sizes = {"ID_BITS": (self.vocabulary - 1).bit_length(), "CHUNK": CHUNK, "PDL": bool(pdl)}
        options = {"enable_fp_fusion": False, "launch_pdl": bool(pdl)}
        row = (logits, logits.stride(0), orders, self._best, self._normalisers, self._tables)
        sums = (*row, self._sums, self.chunks)
        lists = (self._lists, self.list_ids, self._lengths, self._tops)
        out = (results, last_tokens, self.vocabulary)
        largest_kernel[grid](*row, self.vocabulary, **sizes, **options, num_warps=4)
        sums_kernel[grid](*sums, *out, **sizes, **options, num_warps=4)
        choice_kernel[small_grid](
            *sums, *lists, *out, **sizes, ALL=1 << (self.chunks - 1).bit_length(), **options, num_warps=8
        )

    def run_edited(
        self,
        logits: torch.Tensor,
        orders: torch.Tensor,
        edits: torch.Tensor,
        place: torch.Tensor,
        last_tokens: torch.Tensor,
        results: torch.Tensor,
        rows: int,
        pdl: int,
    ) -> None:
        """The same where rows have edits, int32 [rows, EDIT_WORDS], as sample_edits explains.

        `place` int64 [1] is the address of their numbers, in memory that the device can read; `orders` is changed.
        """
        width = -(-self.vocabulary // 16) * 16  # so that rows are loaded 16 bytes at a time
        edited = torch.empty((rows, width), dtype=torch.float32, device=logits.device)
        options = {"PDL": bool(pdl), "enable_fp_fusion": False, "launch_pdl": bool(pdl), "num_warps": 4}
        allow_kernel[(self._programs(rows, self.programs), rows)](
            logits, logits.stride(0), orders, edits, place, edited, width, self._edited_orders, self._own,
            self.vocabulary,
            CHUNK=CHUNK, **options,
        )  # fmt: skip
        move_kernel[(MOVERS, rows)](edits, place, edited, width, **options)
        self.run(edited, self._edited_orders, last_tokens, self._chosen, rows, pdl)
        chain_kernel[(rows,)](
            edited, width, orders, edits, place, self._chosen, self._lists, self.list_ids, self._firsts,
            self.vocabulary, ID_BITS=(self.vocabulary - 1).bit_length(), **(options | {"num_warps": 16}),
        )  # fmt: skip
        adopt_kernel[(rows,)](orders, edits, edited, width, self._own, self._chosen, **(options | {"num_warps": 1}))
        self.run(logits, orders, last_tokens, results, rows, pdl)
        tell_kernel[(rows,)](edits, self._chosen, results, **(options | {"num_warps": 1}))

    def _programs(self, rows: int, most: int) -> int:
        """Programs a row: enough to keep the device busy, each with as many chunks as the others."""
        turns = -(-self.chunks // max(1, min(self.chunks, most // rows)))
        return -(-self.chunks // turns)
