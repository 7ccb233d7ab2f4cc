"""A recorded forward pass, ready to run: one call into C++ a step."""

import ctypes as C
from math import gcd

import numpy as np
import numpy.typing as npt

from parkway.backends.cpu.arena import Value
from parkway.backends.cpu.library import Batch, Pool, library
from parkway.backends.cpu.recorder import Recorder

MAX_QUERIES = 6


class Program:
    """Instructions with addresses, the memory that they use, and the threads that run them."""

    def __init__(self, recorder: Recorder, logits: Value, pool: Pool) -> None:
        machine = recorder.machine
        self._kept = (recorder, pool)
        instructions, self._activations = recorder.finish()
        self._sampler = len(instructions) - 1
        self.buffer_bytes = self._activations.size_bytes + recorder.table_bytes
        shared = machine.heads // machine.kv.kv_heads  # heads that read the same keys; the rows of a tile fill batches
        # Gated layers want 64 floats a row, the sampler the weights and keys of one row of logits.
        scratch = max(64 * machine.max_rows, 3 * logits.width) + 64
        self.address: int = library().pk_program_new(
            pool.address,
            instructions,
            len(instructions),
            machine.max_rows,
            MAX_QUERIES // gcd(MAX_QUERIES, shared),
            machine.kv.kv_heads,
            scratch,
        )

    def rows(self, value: Value, rows: int) -> npt.NDArray[np.float32]:
        """What a step leaves of a value, [rows, width], as long as this program lives."""
        floats = (C.c_float * (rows * value.width)).from_address(value.address)
        return np.ctypeslib.as_array(floats).reshape(rows, value.width)

    def run(self, batch: Batch) -> None:
        """Computes one step. Blocks without holding Python's lock."""
        library().pk_program_run(self.address, C.byref(batch))

    def again(self, batch: Batch, logit_row: int) -> None:
        """Chooses one row's token of the step that ran last once more, as the batch says now."""
        library().pk_program_again(self.address, C.byref(batch), self._sampler, logit_row)

    def __del__(self) -> None:
        if getattr(self, "address", None):
            library().pk_program_free(self.address)
