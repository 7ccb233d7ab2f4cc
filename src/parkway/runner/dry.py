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

    def penalties(self, tokens: Sequence[int], shed: int = 0) -> dict[int, float]:
        """What to take from logits of the token behind these, which are those of the last call and more, but for `shed`
        ones that have been there."""
        how, first, count = self._how, self._known, shed + len(tokens)
        self._take(tokens[first - shed :], first)
        self._find_breakers(tokens[first - shed :], first)
        self._known = count
        start = 0 if how.dry_penalty_last_n < 0 else max(0, count - how.dry_penalty_last_n)
        head, tail = self._break
        limit = count - 1 - head - tail if head >= start else count - start
        if count - start <= how.dry_allowed_length or limit < how.dry_allowed_length:
            return {}
        lengths = np.minimum(self._lengths[start + 1 : count], np.arange(1, count - start))
        places = np.flatnonzero(lengths >= how.dry_allowed_length)
        places = places[np.argsort(lengths[places], kind="stable")]  # a token's longest comes last
        longer = np.minimum(lengths[places], limit) - how.dry_allowed_length
        last = dict(zip(self._tokens[places + start + 1].tolist(), longer.tolist(), strict=True))
        return {token: self._penalty(steps) for token, steps in last.items()}

    def _penalty(self, steps: int) -> float:
        return float(min(self._how.dry_multiplier * self._how.dry_base ** min(steps, self._most_steps), 3e38))

    def _take(self, tokens: Sequence[int], first: int) -> None:
        count = first + len(tokens)
        if count > len(self._tokens):
            room = max(256, 2 * count)
            self._tokens, self._lengths = np.resize(self._tokens, room), np.resize(self._lengths, room + 1)
        self._tokens[first:count] = tokens
        if first == 0:
            self._lengths[: count + 1] = _suffixes(self._reach(tokens), count)
            return
        for known in range(first, count):
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
                begin = at + 1 - len(breaker)
                if begin >= 0 and tuple(self._tokens[begin : at + 1].tolist()) == breaker:
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
