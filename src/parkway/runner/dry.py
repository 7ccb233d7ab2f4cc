"""Which tokens would go on with a repetition, and how long it is: the sampler DRY, from token to token of one chat.

A function of the tokens and the request alone. What a token adds is found in one pass over the window, however long the
repetitions are.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from parkway.request import SamplingParams

_MOST = math.log(3.4e38)
"""The logarithm of the largest penalty before it is multiplied: what fp32 can tell."""


class Dry:
    def __init__(self, how: SamplingParams) -> None:
        self._how = how
        self._most_steps = int(_MOST / math.log(how.dry_base)) if how.dry_base > 1.000001 else 2**31
        self._breakers: dict[int, list[tuple[int, ...]]] = {}
        """By their last token."""
        for breaker in how.dry_breakers:
            self._breakers.setdefault(breaker[-1], []).append(breaker)
        self._break = (-1, 0)
        """Where the last breaker begins, and how many tokens it has behind that."""
        self._tokens: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._lengths: npt.NDArray[np.int32] = np.zeros(1, np.int32)
        """[j]: how many tokens in front of j are those at the end."""
        self._known = 0
        self._base = 0
        """How many of the first tokens are forgotten: they are before any window to come."""

    def penalties(self, tokens: Sequence[int], shed: int = 0) -> dict[int, float]:
        """What to take from logits of the token behind these, which are those of the last call and more, but for `shed`
        ones that have been there. Where the window is all, it is as many of the last ones as the chat still has."""
        how, first, count = self._how, self._known, shed + len(tokens)
        start = shed if how.dry_penalty_last_n < 0 else max(0, count - how.dry_penalty_last_n)
        self._make_room(start, count)
        self._take(tokens[first - shed :], first)
        self._find_breakers(tokens[first - shed :], first)
        self._known = count
        head, tail = self._break
        limit = count - 1 - head - tail if head >= start else count - start
        if count - start <= how.dry_allowed_length or limit < how.dry_allowed_length:
            return {}
        here = start - self._base
        lengths = np.minimum(self._lengths[here + 1 : count - self._base], np.arange(1, count - start))
        places = np.flatnonzero(lengths >= how.dry_allowed_length)
        places = places[np.argsort(lengths[places], kind="stable")]  # a token's longest comes last
        longer = np.minimum(lengths[places], limit) - how.dry_allowed_length
        last = dict(zip(self._tokens[places + here + 1].tolist(), longer.tolist(), strict=True))
        return {token: self._penalty(steps) for token, steps in last.items()}

    def _penalty(self, steps: int) -> float:
        return float(min(self._how.dry_multiplier * self._how.dry_base ** min(steps, self._most_steps), 3e38))

    def _make_room(self, start: int, count: int) -> None:
        """For so many tokens, but for those before the window: a run that began there is cut off there anyway."""
        if count - self._base <= len(self._tokens):
            return
        gone, known = min(start, self._known) - self._base, self._known - self._base
        room = max(256, 2 * (count - self._base - gone))
        tokens, lengths = np.empty(room, np.int32), np.zeros(room + 1, np.int32)
        tokens[: known - gone], lengths[: known - gone + 1] = self._tokens[gone:known], self._lengths[gone : known + 1]
        self._tokens, self._lengths = tokens, lengths
        self._base += gone

    def _take(self, tokens: Sequence[int], first: int) -> None:
        begin, end = first - self._base, first - self._base + len(tokens)
        self._tokens[begin:end] = tokens
        if first == 0:
            self._lengths[: end + 1] = _suffixes(self._reach(tokens), end)
            return
        for known in range(begin, end):
            same = self._tokens[:known] == self._tokens[known]
            self._lengths[1 : known + 1] = np.where(same, self._lengths[:known] + 1, 0)
            self._lengths[0] = 0

    def _reach(self, tokens: Sequence[int]) -> list[int]:
        last = self._how.dry_penalty_last_n
        return list(tokens if last < 0 else tokens[max(0, len(tokens) - last) :])

    def _find_breakers(self, tokens: Sequence[int], first: int) -> None:
        if not self._breakers:
            return
        for at, token in enumerate(tokens, first):
            for breaker in self._breakers.get(token, ()):
                begin, here = at + 1 - len(breaker), at + 1 - self._base
                if begin >= self._base and tuple(self._tokens[here - len(breaker) : here].tolist()) == breaker:
                    self._break = max(self._break, (begin, len(breaker) - 1))


def _suffixes(tokens: list[int], count: int) -> npt.NDArray[np.int32]:
    """[j] for the last tokens of so many, j up to `count`: how many in front of j are those at the end, by Gusfield's Z
    algorithm, in time that grows with their number."""
    back, n = tokens[::-1], len(tokens)
    z, left, right = [0] * n, 0, 0
    for i in range(1, n):
        length = min(right - i, z[i - left]) if i < right else 0
        while i + length < n and back[length] == back[i + length]:
            length += 1
        z[i] = length
        if i + length > right:
            left, right = i, i + length
    lengths = np.zeros(count + 1, np.int32)
    lengths[count - n + 1 : count] = z[:0:-1]
    return lengths
