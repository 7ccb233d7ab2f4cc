"""What a request asks to be changed about its logits before a token is chosen, as numbers for the next token.

A function of the request, its tokens so far and what a grammar allows next; whatever was computed, parked or computed
again meanwhile has no part in it. Knows no backend and no grammar.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from parkway.request import Request
from parkway.runner.chain import Chain, chain_of, first_mu, next_mu, steps_of
from parkway.runner.dry import Dry

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.uint32]
"""What is allowed: bit `id % 32` of word `id // 32`, for every id of the vocabulary."""


class Edits(NamedTuple):
    """Of one row: logit x of ids[i] becomes `x * (shrink[i] if x > 0 else grow[i]) + offset[i]`, each operation rounded
    once to float32; then what the mask forbids is -inf. No id is there twice. Log-probabilities are of x. `chain`: by
    which samplers the token is chosen from that; None: the usual ones.
    """

    ids: npt.NDArray[np.int32]
    shrink: Floats
    grow: Floats
    offset: Floats
    mask: Mask | None = None
    chain: Chain | None = None


NO_EDITS: Mapping[int, Edits] = MappingProxyType({})


class Editor:
    """The edits of one chat from token to token. Each token is counted once, so that a long chat costs little more."""

    def __init__(self, request: Request, vocab_size: int) -> None:
        how = self._how = request.sampling
        self._prompt_tokens, self._mask_words = len(request.prompt), -(-vocab_size // 32)
        self._window = self._prompt_tokens + 2**31 if how.repeat_last_n < 0 else how.repeat_last_n
        self._repeats = how.repeat_penalty != 1 and self._window > 0
        self._counts = self._repeats or how.presence_penalty != 0 or how.frequency_penalty != 0
        self._dry = Dry(how) if how.dry else None
        self._chain, self._mu = chain_of(how), first_mu(how)
        self._bias: dict[int, float] = {}
        for token, number in how.logit_bias:
            self._bias[token] = self._bias.get(token, 0.0) + number
        # Of the prompt, only what is within reach of the first token.
        self._first = max(0, self._prompt_tokens - self._window) if self._repeats else self._prompt_tokens
        self._counted = self._first
        self._recent: dict[int, int] = {}
        self._reach: deque[int] | None = deque() if self._repeats and how.repeat_last_n > 0 else None
        """The last tokens that were counted, oldest first, where one is to be forgotten."""
        self._answer: dict[int, int] = {}
        self._repeated: dict[int, float] = {}
        self._columns: dict[int, int] = {}
        self._ids = np.empty(64, np.int32)
        self._shrink, self._grow, self._offset = (np.empty(64, np.float32) for _ in range(3))
        wanted = how.min_tokens and not how.ignore_eos
        ends = [token for token in sorted(request.stop_ids) if wanted and 0 <= token < vocab_size]
        self._ends = len(ends)
        for token in (*ends, *self._bias):
            self._set(token)

    @classmethod
    def needed(cls, request: Request) -> bool:
        """Whether a request asks for edits at all."""
        how = request.sampling
        return how.needs_history or bool(how.logit_bias) or how.min_tokens > 0 or steps_of(how) is not None

    def edits(self, tokens: Sequence[int], position: int, mask: Mask | None, *, shed: int = 0) -> Edits | None:
        """For the token at a position, behind these of prompt and answer; None if nothing is to edit.

        `tokens` grows from call to call, and has all before the position if the request needs its history, but for the
        `shed` ones that have been there: those that are new since the last call are always there.
        """
        assert mask is None or len(mask) == self._mask_words, "a mask of another vocabulary"
        if self._counts or self._dry:
            assert shed + len(tokens) == position, "a token is chosen whose history is not known"
            self._count(tokens, shed)
        forbids_ends = self._ends > 0 and position - self._prompt_tokens < self._how.min_tokens
        count = len(self._columns)
        moves = count and (forbids_ends or self._counts or self._dry or self._bias)
        if not moves and mask is None and self._chain is None:
            return None
        now = (self._shrink, self._grow, self._offset)
        shrink, grow, offset = (each[:count].copy() for each in now)  # the next token changes them
        if forbids_ends:
            offset[: self._ends] = -np.inf
        return Edits(self._ids[:count], shrink, grow, offset, mask, self._chain_now())

    def chosen(self, surprise: float) -> None:
        """The token that was asked for last has been chosen, and had this surprise in bits."""
        self._mu = next_mu(self._how, self._mu, surprise)

    def _chain_now(self) -> Chain | None:
        if self._chain is None or not self._how.mirostat:
            return self._chain
        chain = self._chain.copy()
        chain[-1]["a"] = self._mu
        return chain

    def _count(self, tokens: Sequence[int], shed: int) -> None:
        """Counts the tokens that have come, in the order in which they came."""
        changed: dict[int, None] = {}
        if self._dry:
            before, self._repeated = self._repeated, self._dry.penalties(tokens, shed)
            changed |= dict.fromkeys((*before, *self._repeated))
        for at in range(self._counted, shed + len(tokens) if self._counts else 0):
            token = tokens[at - shed]
            changed[token] = None
            if at >= self._prompt_tokens:
                self._answer[token] = self._answer.get(token, 0) + 1
            if self._repeats:
                self._recent[token] = self._recent.get(token, 0) + 1
                changed |= dict.fromkeys(self._forgotten(token))
        self._counted = shed + len(tokens)
        for token in changed:
            self._set(token)

    def _forgotten(self, token: int) -> tuple[int, ...]:
        """The token that leaves the window because this one has come into it."""
        if self._reach is None:
            return ()
        self._reach.append(token)
        if len(self._reach) <= self._window:
            return ()
        gone = self._reach.popleft()
        self._recent[gone] -= 1
        return (gone,)

    def _set(self, token: int) -> None:
        """Writes what a token's logit is changed by, as it has been counted."""
        how, said = self._how, self._answer.get(token, 0)
        repeat = how.repeat_penalty if self._recent.get(token, 0) else 1.0
        offset = self._bias.get(token, 0.0) - how.frequency_penalty * said - how.presence_penalty * (said > 0)
        offset -= self._repeated.get(token, 0.0)
        column = self._columns.setdefault(token, len(self._columns))
        if column == len(self._ids):
            self._ids = np.resize(self._ids, 2 * column)
            self._shrink, self._grow, self._offset = (
                np.resize(each, 2 * column) for each in (self._shrink, self._grow, self._offset)
            )
        self._ids[column] = token
        self._shrink[column], self._grow[column], self._offset[column] = 1 / repeat, repeat, offset
