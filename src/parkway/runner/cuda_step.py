"""Steps on the device, by row count: the words that the host fills, the forward pass over them, its captured graphs.

Few rows are padded to a bucket, whose launches are replayed as one graph; many rows are launched one by one, since
their kernels last longer than their launches.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from parkway.backends.cuda import attention_work
from parkway.backends.cuda.attention import Work
from parkway.backends.cuda.attention_work import Chunks, Lists
from parkway.backends.cuda.batch import Layout
from parkway.backends.cuda.delta import Runs, list_runs, most_blocks
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
        self.windows = tuple(sorted(family.config.windows, key=lambda window: window or math.inf))
        """That layers see: the last is what sees most, or all."""
        self.ops = ops
        self.stream = device.stream()
        self.tables = torch.zeros((sizes.slots, sizes.pages), dtype=torch.int32, device=on)
        self.last_tokens = torch.zeros(sizes.slots, dtype=torch.int32, device=on)
        self.results = torch.zeros((sizes.logit_rows, RESULT.itemsize // 4), dtype=torch.int32, device=on)
        self.sampler = Sampler(family.config.vocabulary, sizes.logit_rows, on)
        longest = {sizes.rows, self._padded(min(BUCKETS[-1], sizes.rows))}
        self.most_words = max(self._layout(rows)[0].words for rows in longest)
        self.words = torch.zeros(self.most_words, dtype=torch.int32, device=on)
        self._captured: dict[int, DeviceStep] = {}

    @property
    def decode_buckets(self) -> tuple[int, ...]:
        """Buckets of the steps in which each slot has a row at most, where steps are captured."""
        most = self._padded(self.sizes.slots)
        return tuple(bucket for bucket in BUCKETS if bucket <= most) if self.graphs else ()

    def of(self, rows: int) -> "DeviceStep":
        """The step for so many rows."""
        if not self.graphs or rows > BUCKETS[-1]:
            return self._made(rows)
        padded = self._padded(rows)
        if padded not in self._captured:
            self._captured[padded] = self._made(padded)
        return self._captured[padded]

    def _padded(self, rows: int) -> int:
        """With rows of nobody, as a captured step has them: perhaps more than any step has of chats."""
        return next((bucket for bucket in BUCKETS if bucket >= rows), rows)

    def _made(self, rows: int) -> "DeviceStep":
        return DeviceStep(self, rows, *self._layout(rows))

    def _layout(self, rows: int) -> tuple[Layout, Mapping[int, attention_work.Sizes]]:
        sizes, ops = self.sizes, self.ops
        logit_rows = min(rows, sizes.logit_rows)
        works = {window: ops.work_sizes(rows, sizes.slots, sizes.pages, window) for window in self.windows}
        runs = min(rows, sizes.slots) if self.pool.states else 0
        shapes: Mapping[str, tuple[int, ...]] = {
            "tokens": (rows,),
            "slots": (rows,),
            "positions": (rows,),
            "logit_row": (logit_rows,),
            "orders": (logit_rows, ORDER.itemsize // 4),
            "edits": (logit_rows, EDIT_WORDS),
            "edits_place": (2,),
            "runs": (runs, 5),
            "blocks": (most_blocks(rows, runs), 2),
            **{
                f"{name} {window}": work.shapes[name]
                for window, work in works.items()
                for name in ("few_count", "many", "many_count", "few")
            },
        }
        return Layout.of(shapes), works


class DeviceStep:
    """A step of `rows` rows, those of nobody included. The host fills `parts`, then it runs."""

    def __init__(self, steps: Steps, rows: int, layout: Layout, works: Mapping[int, attention_work.Sizes]) -> None:
        self.rows = rows
        self.layout = layout
        self._steps = steps
        self._works = works
        self._part = {name: layout.part(steps.words, name) for name in layout.shapes}
        self._counts = dict.fromkeys(works, (0, 0))
        """Items of attention's lists for few rows and for many, by window."""
        self._chunks: Chunks | None = None
        self._replays: dict[tuple[bool, bool], tuple[Callable[[], None], torch.Tensor]] = {}
        """By whether there is work for many rows, and whether rows have edits: what runs the step, and its hidden
        states, whose memory is nobody else's as long as they are held here."""

    def parts(self, words: Words) -> dict[str, Words]:
        """The host's words, cut as the device's are."""
        made = {}
        for name, shape in self.layout.shapes.items():
            at = self.layout.offsets[name]
            made[name] = words[at : at + int(np.prod(shape))].reshape(shape)
        return made

    @property
    def used_words(self) -> int:
        """How many of the words say something: all but the rest of the last list, which is long for deep chats."""
        window = self._steps.windows[-1]
        few = f"few {window}"
        return self.layout.offsets[few] + self._counts[window][0] * self.layout.shapes[few][1]

    def fill_work(self, part: Mapping[str, Words], chunks: Chunks) -> None:
        """Writes attention's work for the step's chunks."""
        for window, work in self._works.items():
            lists = Lists(*(part[f"{name} {window}"] for name in Lists._fields))
            self._counts[window] = attention_work.build(work, chunks, self.rows, lists)
        if self._steps.pool.states:
            list_runs(chunks, part["runs"], part["blocks"])
        self._chunks = chunks

    def run(self, *, edited: bool) -> torch.Tensor:
        """Computes what the words say; the first time by launching each kernel. `edited`: whether rows have edits.

        Returns what the logits are made of, bf16 [logit rows, width], until the next step.
        """
        kind = any(many for _, many in self._counts.values()), edited
        if kind in self._replays:
            replay, hidden = self._replays[kind]
            replay()
            return hidden
        self._forward(self._counts, edited)
        hidden = self._steps.ops.hidden
        if self._steps.graphs and self.rows in BUCKETS:
            most = {window: (work.items, work.tiles if kind[0] else 0) for window, work in self._works.items()}
            replay = self._steps.device.capture(self._steps.stream, lambda: self._forward(most, edited))
            self._replays[kind] = replay, self._steps.ops.hidden
        return hidden

    def _forward(self, counts: Mapping[int, tuple[int, int]], edited: bool) -> None:
        """Launches the forward pass and the sampler, with room for so many items of attention's lists."""
        steps, part = self._steps, self._part
        works = {window: self._work(window, *items) for window, items in counts.items()}
        step = StepTensors(
            tokens=part["tokens"],
            slots=part["slots"],
            positions=part["positions"],
            tables=steps.tables,
            logit_row=part["logit_row"],
            last_tokens=steps.last_tokens,
            works=works,
            chunks=None if self.rows in BUCKETS and steps.graphs else self._chunks,
            runs=Runs(*(part[name] for name in ("positions", "slots", "runs", "blocks")))
            if steps.pool.states
            else None,
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

    def _work(self, window: int, few: int, many: int) -> Work:
        items, few_count, tiles, many_count = (self._part[f"{name} {window}"] for name in Lists._fields)
        return Work(items[:few], few_count, tiles[:many], many_count)
