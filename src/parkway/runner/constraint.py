"""What the grammar of one request allows next. Knows token ids and their bytes; no text, step or model."""

from time import perf_counter

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from parkway.request import Request, SamplingParams
from parkway.runner import GREEDY_BELOW
from parkway.runner.chain import steps_of
from parkway.runner.compiled import compiled
from parkway.runner.edits import Mask

PATIENCE = 0.002
"""Seconds that a step waits for masks that are usually there by then: a step that a chat sits out is a token less, and
this much of a wait is a small part of one for each of the others."""
INSTANT = 0.00007
"""A mask that takes so long is sooner worked out than another thread is woken."""
MOST_SLOW = 3
"""Times that steps may wait for a request's grammar for longer than PATIENCE."""
NO_TOKEN = "the grammar allows no token"


class Constraint:
    """The grammar of one request, and what it allows behind the tokens that it has been told.

    One thread at a time works on it: from `begin` or `accept` until it has `landed`, nobody else looks.
    """

    def __init__(self, request: Request, vocab_size: int, *, draws_first: bool = False) -> None:
        """`draws_first`: whether tokens may be drawn before there is a mask, and drawn again."""
        self.request = request
        self.mask: Mask | None = None
        self.may_end = self.ended = False
        """The answer may be over; it is, and there is no token that says so."""
        self.error: str | None = None
        self.seconds = float("inf")
        """That its last token took, of those that have been told one by one."""
        self.draws_first = draws_first and _same_in_two_draws(request.sampling)
        self._slow = 0
        self._told = False
        """The matcher knows the token already that will be accepted next."""
        self._vocab_size = vocab_size
        self._answered = 0
        self._matcher: LLMatcher | None = None

    @property
    def needs_no_mask(self) -> bool:
        """Its tokens are drawn first, and a mask is worked out where one is forbidden: as long as they are quick."""
        return self.draws_first and self._slow < MOST_SLOW

    def begin(self, tokenizer: LLTokenizer) -> None:
        """Compiles the grammar and works out the first mask."""
        assert self.request.sampling.grammar is not None
        self._matcher = compiled(tokenizer, self.request.sampling.grammar)
        self._work_out()

    def takes(self, token_id: int) -> bool:
        """Whether a token that was drawn without a mask is allowed. If not, there is a mask now, or an error."""
        began = perf_counter()
        try:
            if self.mask is None and not self._consumes(token_id):
                self._work_out()
        except BaseException as error:  # a panic of the library is no Exception
            self.give_up(error)
        self._slow += perf_counter() - began > PATIENCE
        return self.allows(token_id)

    def give_up(self, error: BaseException) -> None:
        """The library has failed: nothing is allowed any more."""
        self.mask, self._told, self.error = None, False, f"the grammar gave up: {error}"

    def accept(self, token_id: int) -> None:
        """Goes on behind one token more, and works out its mask if that is needed."""
        assert self._matcher is not None, "not begun"
        self._answered += 1
        self.mask = None
        began = perf_counter()
        if not self._told:
            self._matcher.consume_token(token_id)
        self._told = False
        if not self.needs_no_mask or self._matcher.is_accepting() or self._matcher.is_error():
            self._work_out()
        self.seconds = perf_counter() - began
        self._slow += self.seconds > PATIENCE

    def allows(self, token_id: int) -> bool:
        return self._told or (self.mask is not None and _has(self.mask, token_id))

    def _consumes(self, token_id: int) -> bool:
        """Goes on behind a token that the grammar allows by its text. What ends an answer is a matter of the mask."""
        assert self._matcher is not None, "not begun"
        self._told = token_id not in self.request.stop_ids and self._matcher.try_consume_tokens([token_id]) == 1
        return self._told

    def _work_out(self) -> None:
        """What is allowed next. In the matcher's vocabulary one token more than in the model's is the end."""
        matcher, end = self._matcher, self._vocab_size
        assert matcher is not None
        words = np.zeros(_words(end + 1), np.uint32)
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if matcher.is_error():
            self.mask, self.error = None, _sentence(matcher.get_error())
            return
        self.may_end = _has(words, end)
        _set(words, end, allowed=False)
        self._set_ends(words)
        self.mask = words[: _words(end)]
        if not self.mask.any():
            self.ended = self.may_end
            self.error = None if self.may_end else NO_TOKEN

    def _set_ends(self, words: Mask) -> None:
        """What ends the answer is allowed where the grammar may end, and where it names it itself."""
        how = self.request.sampling
        forbidden = how.ignore_eos or self._answered < how.min_tokens
        if forbidden or self.may_end:
            for token_id in self.request.stop_ids:
                if token_id < self._vocab_size:
                    _set(words, token_id, allowed=not forbidden)


def _same_in_two_draws(how: SamplingParams) -> bool:
    """Whether chances are the same if a token is drawn from all and, where it is forbidden, from those that are
    allowed. What narrows the choice down would not leave the same ones."""
    narrows = how.top_k > 0 or how.top_p < 1 or how.min_p > 0
    return steps_of(how) is None and (how.temperature < GREEDY_BELOW or not narrows)


def _sentence(error: str) -> str:
    line = error.strip().splitlines()[0]
    return NO_TOKEN if line.startswith("NoExtension") else f"the grammar gave up: {line}"


def _words(bits: int) -> int:
    return (bits + 31) // 32


def _has(words: Mask, token_id: int) -> bool:
    return bool(words[token_id >> 5] >> np.uint32(token_id & 31) & np.uint32(1))


def _set(words: Mask, token_id: int, *, allowed: bool) -> None:
    bit = np.uint32(1 << (token_id & 31))
    words[token_id >> 5] = words[token_id >> 5] | bit if allowed else words[token_id >> 5] & ~bit
