"""A model file on the reference backend, one chat at a time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parkway.backends.reference import Floats, ReferenceOps, ReferencePack, ReferenceStep
from parkway.models import build_model
from parkway.plan.step import PAGE_TOKENS
from parkway.weights import open_checkpoint


class Referred:
    def __init__(self, path: Path) -> None:
        self.model = build_model(open_checkpoint(path), ReferencePack())
        self._ops = ReferenceOps(self.model.config.kv, state_shape=self.model.config.states)

    def whole(self, token_ids: Sequence[int]) -> tuple[Floats, list[Floats]]:
        """Logits [tokens, vocabulary], and the rows that each layer makes."""
        seen: list[Floats] = []
        feed_forward = self.model.feed_forward

        def keeping(*arguments: Any) -> Any:
            seen.append(feed_forward(*arguments))
            return seen[-1]

        self.model.feed_forward = keeping  # type: ignore[method-assign, assignment]
        return self.in_steps(token_ids, [len(token_ids)]), seen

    def in_steps(self, token_ids: Sequence[int], counts: Sequence[int]) -> Floats:
        """Logits of all tokens, so many of them in each step."""
        made, start = [], 0
        for count in counts:
            made.append(self._step(token_ids[start : start + count], start))
            start += count
        assert start == len(token_ids)
        return np.concatenate(made)

    def _step(self, token_ids: Sequence[int], start: int) -> Floats:
        rows, pages = len(token_ids), range((start + len(token_ids) - 1) // PAGE_TOKENS + 1)
        self._ops.step = ReferenceStep(token_ids, range(start, start + rows), [list(pages)] * rows, range(rows))
        return np.asarray(self.model.forward(self._ops))
