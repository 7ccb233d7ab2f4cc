"""Steps on the device, by row count: the words that the host fills, the forward pass over them, its captured graphs.

Few rows are padded to a bucket, whose launches are replayed as one graph; many rows are launched one by one, since
their kernels last longer than their launches.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from parkway.backends.cuda import attention_work
from parkway.backends.cuda.attention import Work
from parkway.backends.cuda.attention_work import Chunks, Lists
from parkway.backends.cuda.batch import Layout
from parkway.backends.cuda.device import Device
from parkway.backends.cuda.operations import CudaOps, Pool, StepTensors
from parkway.backends.cuda.sample import ORDER, RESULT, Sampler
from parkway.backends.cuda.sample_edits import EDIT_WORDS
from parkway.models import Dense

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Row counts that are captured as graphs."""

Words = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The most that a step may have. `pages`: of one chat."""

    slots: int
    rows: int
    logit_rows: int
    pages: int


class Steps:
    """The steps of one pool, all on one stream. `graphs`: whether they are captured."""

    def __init__(self, family: Dense, ops: CudaOps, pool: Pool, sizes: Sizes, device: Device, *, graphs: bool) -> None:
        on = device.torch
        self.sizes = sizes
        self.pool = pool
        self.device = device
        self.graphs = graphs and device.is_gpu
        self.family = family
        self.ops = ops
        self.stream = device.stream()
        self.tables = torch.zeros((sizes.slots, sizes.pages), dtype=torch.int32, device=on)
        self.last_tokens = torch.zeros(sizes.slots, dtype=torch.int32, device=on)
        self.results = torch.zeros((sizes.logit_rows, RESULT.itemsize // 4), dtype=torch.int32, device=on)
        self.sampler = Sampler(family.config.vocabulary, sizes.logit_rows, on)
        self.most_words = max(self._layout(rows)[0].words for rows in {sizes.rows, min(BUCKETS[-1], sizes.rows)})
        self.words = torch.zeros(self.most_words, dtype=torch.int32, device=on)
        self._captured: dict[int, DeviceStep] = {}

    @property
    def decode_buckets(self) -> tuple[int, ...]:
        """Buckets of the steps in which each slot has a row at most, where steps are captured."""
        slots = min(bucket for bucket in (*BUCKETS, self.sizes.slots) if bucket >= self.sizes.slots)
        return tuple(bucket for bucket in BUCKETS if bucket <= slots) if self.graphs else ()

    def of(self, rows: int) -> "DeviceStep":
        """The step for so many rows."""
        bucket = next((bucket for bucket in BUCKETS if bucket >= rows), None)
        if not self.graphs or bucket is None:
            return self._made(rows)
        if bucket not in self._captured:
            self._captured[bucket] = self._made(bucket)
        return self._captured[bucket]

    def _made(self, rows: int) -> "DeviceStep":
        return DeviceStep(self, rows, *self._layout(rows))

    def _layout(self, rows: int) -> tuple[Layout, attention_work.Sizes]:
        sizes, ops = self.sizes, self.ops
        logit_rows = min(rows, sizes.logit_rows)
        work = ops.work_sizes(rows, sizes.slots, sizes.pages)
        shapes: Mapping[str, tuple[int, ...]] = {
            "tokens": (rows,),
            "slots": (rows,),
            "positions": (rows,),
            "logit_row": (logit_rows,),
            "orders": (logit_rows, ORDER.itemsize // 4),
            "edits": (logit_rows, EDIT_WORDS),
            "edits_place": (2,),
            **{name: work.shapes[name] for name in ("few_count", "many", "many_count", "few")},
        }
        return Layout.of(shapes), work


class DeviceStep:
    """A step of `rows` rows, those of nobody included. The host fills `parts`, then it runs."""

    def __init__(self, steps: Steps, rows: int, layout: Layout, work: attention_work.Sizes) -> None:
        self.rows = rows
        self.layout = layout
        self._steps = steps
        self._work = work
        self._part = {name: layout.part(steps.words, name) for name in layout.shapes}
        self._few = self._many = 0
        self._chunks: Chunks | None = None
        self._runs: dict[tuple[bool, bool], Callable[[], None]] = {}
        """By whether there is work for many rows, and whether rows have edits: what runs the step."""

    def parts(self, words: Words) -> dict[str, Words]:
        """The host's words, cut as the device's are."""
        made = {}
        for name, shape in self.layout.shapes.items():
            at = self.layout.offsets[name]
            made[name] = words[at : at + int(np.prod(shape))].reshape(shape)
        return made

    @property
    def used_words(self) -> int:
        """How many of the words say something: all but the rest of `few`, which is long for the sake of deep chats."""
        return self.layout.offsets["few"] + self._few * self.layout.shapes["few"][1]

    def fill_work(self, part: Mapping[str, Words], chunks: Chunks) -> None:
        """Writes attention's work for the step's chunks."""
        lists = Lists(part["few"], part["few_count"], part["many"], part["many_count"])
        self._few, self._many = attention_work.build(self._work, chunks, self.rows, lists)
        self._chunks = chunks

    def run(self, *, edited: bool) -> None:
        """Computes what the words say; the first time by launching each kernel. `edited`: whether rows have edits."""
        kind = self._many > 0, edited
        if kind in self._runs:
            self._runs[kind]()
            return
        self._forward(self._few, self._many, edited)
        if self._steps.graphs and self.rows in BUCKETS:
            few_items, tiles = self._work.items, self._work.tiles if self._many else 0
            self._runs[kind] = self._steps.device.capture(
                self._steps.stream, lambda: self._forward(few_items, tiles, edited)
            )

    def _forward(self, few: int, many: int, edited: bool) -> None:
        """Launches the forward pass and the sampler, with room for so many items of attention's lists."""
        steps, part = self._steps, self._part
        work = Work(part["few"][:few], part["few_count"], part["many"][:many], part["many_count"])
        step = StepTensors(
            tokens=part["tokens"],
            slots=part["slots"],
            positions=part["positions"],
            tables=steps.tables,
            logit_row=part["logit_row"],
            last_tokens=steps.last_tokens,
            work=work,
            chunks=None if self.rows in BUCKETS and steps.graphs else self._chunks,
        )
        steps.ops.begin(step)
        logits = steps.family.forward(steps.ops)
        rows, orders, early = len(part["logit_row"]), part["orders"], steps.ops.early
        out = steps.last_tokens, steps.results
        if edited:
            edits = part["edits"], part["edits_place"].view(torch.int64)
            steps.sampler.run_edited(logits, orders, *edits, *out, rows, early)
        else:
            steps.sampler.run(logits, orders, *out, rows, early)
