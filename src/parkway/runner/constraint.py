"""Which tokens the grammars of open requests allow next, worked out beside the steps. Knows token ids and their bytes;
no text, step or model."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from parkway.machine import cores
from parkway.request import Request, Vocabulary
from parkway.runner.compiled import compiled
from parkway.runner.edits import Mask

PATIENCE = 0.002
"""Seconds that a step waits for masks that are usually there by then: a step that a chat sits out is a token less, and
this much of a wait is a small part of one for each of the others."""
NAP = 0.01
"""Most seconds that an engine without anything to compute sleeps before it looks at its events."""
NO_TOKEN = "the grammar allows no token"
_MOST_THREADS = 4
_IN_STRING = r'[^"\\\x00-\x1F\x7F]'
SLICES = [*(_IN_STRING + f"{{1,{most}}}" for most in (8, 11, 15)), _IN_STRING + "+"]
"""Kinds of tokens that llguidance allows at once where it can prove that it may allow all of a kind. It walks through
the rest, which where a string may have a few characters more are those that are longer, and that walk is what a mask
costs. With these lengths it is the shortest on the average, for up to 12 characters as for up to 30; kinds that don't
fit are walked through one by one, so more of them would cost time, and memory."""


class Constraint:
    """The grammar of one request, and what it allows behind the tokens that it has been told.

    One thread at a time works on it: from `begin` or `accept` until it has `landed`, nobody else looks.
    """

    def __init__(self, request: Request, vocab_size: int) -> None:
        self.request = request
        self.mask: Mask | None = None
        self.may_end = self.ended = False
        """The answer may be over; it is, and there is no token that says so."""
        self.error: str | None = None
        self.quick = False
        """Its last mask took no longer than a step waits."""
        self._vocab_size = vocab_size
        self._answered = 0
        self._matcher: LLMatcher | None = None

    def begin(self, tokenizer: LLTokenizer) -> None:
        """Compiles the grammar and works out the first mask."""
        assert self.request.sampling.grammar is not None
        self._matcher = compiled(tokenizer, self.request.sampling.grammar)
        self._work_out()

    def accept(self, token_id: int) -> None:
        """Works out the mask behind one token more."""
        assert self._matcher is not None, "not begun"
        self._answered += 1
        began = perf_counter()
        self._matcher.consume_token(token_id)
        self._work_out()
        self.quick = perf_counter() - began < PATIENCE

    def allows(self, token_id: int) -> bool:
        return self.mask is not None and _has(self.mask, token_id)

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


class Constraints:
    """Those of one engine. Called from its thread; what takes time runs on others, that of a grammar in order."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._vocabulary: Vocabulary | None = None
        self._tokenizer: Future[LLTokenizer] | None = None
        self._open: dict[int, Constraint] = {}
        self._due: set[Constraint] = set()
        """Those that are being worked on, though their request may have ended."""
        self._accepted: list[tuple[Constraint, int]] = []
        """Tokens that quick ones have been told and nobody works on yet."""
        self._landed: SimpleQueue[Constraint] = SimpleQueue()
        # Threads start when they are needed. A grammar may take long to compile, so no mask waits behind one.
        self._compiler = ThreadPoolExecutor(1, "parkway-grammar")
        self._threads = min(_MOST_THREADS, len(cores()))
        self._maskers = ThreadPoolExecutor(self._threads, "parkway-mask")

    @property
    def due(self) -> bool:
        """Whether a mask is being worked out."""
        return bool(self._due)

    def teach(self, vocabulary: Vocabulary) -> None:
        """What the token ids stand for. Later calls do nothing."""
        if self._tokenizer is None:
            self._vocabulary = vocabulary

    def index(self) -> None:
        """Makes llguidance's view of the vocabulary, if known. Holds the GIL for some tenths of a second; once."""
        if self._tokenizer is None and self._vocabulary is not None:
            self._tokenizer = self._compiler.submit(tokenizer_of, self._vocabulary, self._vocab_size)
            self._vocabulary = None

    def open(self, request: Request) -> None:
        """Begins with a request's grammar."""
        constraint = self._open[request.id] = Constraint(request, self._vocab_size)
        self._due.add(constraint)
        self.index()
        self._compiler.submit(self._begin, constraint)

    def accept(self, request_id: int, token_id: int) -> None:
        """The request's answer has one token more; does nothing if it has no grammar."""
        constraint = self._open.get(request_id)
        if constraint is not None:
            constraint.mask = None
            self._due.add(constraint)
            if constraint.quick:
                self._accepted.append((constraint, token_id))
            else:
                self._maskers.submit(self._accept, constraint, token_id)

    def begin(self) -> None:
        """Begins with the masks behind the tokens of a step: quick ones in one piece of work, since to wake a thread
        takes as long; threads take from it in turns, since some are ten times as quick as others."""
        accepted, self._accepted = deque(self._accepted), []
        for _ in range(min(self._threads, len(accepted))):
            self._maskers.submit(self._accept_all, accepted)

    def allows(self, request_id: int, token_id: int | None) -> bool:
        """Whether a token that was sampled behind the last mask may be told; a request without a grammar allows all."""
        constraint = self._open.get(request_id)
        return constraint is None or token_id is None or constraint.allows(token_id)

    def mask(self, request_id: int) -> Mask | None:
        """What is allowed next; None for a request without a grammar. It must have landed."""
        constraint = self._open.get(request_id)
        if constraint is None:
            return None
        assert constraint.mask is not None, f"request {request_id} was planned without its mask"
        return constraint.mask

    def drop(self, request_id: int) -> None:
        """The request has ended. A mask that is being worked out for it is nobody's."""
        self._open.pop(request_id, None)

    def landed(self) -> list[Constraint]:
        """Those that have landed since this was last asked; waits for those that will soon."""
        self.begin()
        if not self._due:
            return []
        landed, until = [], monotonic() + PATIENCE
        while self._due:
            patience = until - monotonic() if any(constraint.quick for constraint in self._due) else 0
            try:
                constraint = self._landed.get(timeout=max(0, patience))
            except Empty:
                break
            self._due.discard(constraint)
            if self._open.get(constraint.request.id) is constraint:
                landed.append(constraint)
        return landed

    def sleep(self) -> None:
        """Until one has landed, but not so long that nobody looks at the events."""
        with suppress(Empty):
            self._landed.put(self._landed.get(timeout=NAP))

    def close(self) -> None:
        """Waits for what is being worked out. The last call."""
        for threads in (self._compiler, self._maskers):
            threads.shutdown(cancel_futures=True)

    def _begin(self, constraint: Constraint) -> None:
        try:
            if self._tokenizer is None:
                raise ValueError("nobody has told what the tokens stand for")
            constraint.begin(self._tokenizer.result())
        except BaseException as error:  # a panic of the library is no Exception
            constraint.error = f"the grammar can't be compiled: {error}"
        self._landed.put(constraint)

    def _accept_all(self, accepted: deque[tuple[Constraint, int]]) -> None:
        """Until there is none left that no other thread has taken."""
        with suppress(IndexError):
            while True:
                self._accept(*accepted.popleft())

    def _accept(self, constraint: Constraint, token_id: int) -> None:
        try:
            constraint.accept(token_id)
        except BaseException as error:
            constraint.mask, constraint.error = None, f"the grammar gave up: {error}"
        self._landed.put(constraint)


class _Pieces(TokenizerWrapper):
    """What llguidance wants to know of a vocabulary: the bytes of each token, and which are no text."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, vocab_size: int) -> None:
        given = vocabulary.pieces[:vocab_size]
        self.tokens = [*given, *[b""] * (vocab_size + 1 - len(given))]
        self.eos_token_id = vocab_size
        self.special_token_ids = sorted(token_id for token_id in vocabulary.special_ids if token_id < vocab_size)

    def __call__(self, s: str) -> list[int]:
        """Asked only for tokens that are forced, and none are."""
        raise NotImplementedError("there is no tokenizer below the text")


def tokenizer_of(vocabulary: Vocabulary, vocab_size: int) -> LLTokenizer:
    """llguidance's view of a vocabulary; its token number `vocab_size` is the end. Holds the GIL meanwhile."""
    return LLTokenizer(_Pieces(vocabulary, vocab_size), slices=SLICES)


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
