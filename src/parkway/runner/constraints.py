"""What the grammars of open requests allow next, worked out beside the steps. Knows token ids and their bytes; no text,
step or model."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic

from llguidance import LLTokenizer, TokenizerWrapper

from parkway.machine import cores
from parkway.request import Request, Vocabulary
from parkway.runner.constraint import INSTANT, PATIENCE, Constraint
from parkway.runner.edits import Mask

NAP = 0.01
"""Most seconds that an engine without anything to compute sleeps before it looks at its events."""
_MOST_THREADS = 4
_IN_STRING = r'[^"\\\x00-\x1F\x7F]'
SLICES = [*(_IN_STRING + f"{{1,{most}}}" for most in (8, 11, 15)), _IN_STRING + "+"]
"""Kinds of tokens that llguidance allows at once where it can prove that it may allow all of a kind. It walks through
the rest, which where a string may have a few characters more are those that are longer, and that walk is what a mask
costs. With these lengths it is the shortest on the average, for up to 12 characters as for up to 30; kinds that don't
fit are walked through one by one, so more of them would cost time, and memory."""


class Constraints:
    """Those of one engine. Called from its thread; what takes time runs on others, that of a grammar in order."""

    def __init__(self, vocab_size: int, *, draws_first: bool = False) -> None:
        """`draws_first`: as `Constraint` says."""
        self._vocab_size, self._draws_first = vocab_size, draws_first
        self._vocabulary: Vocabulary | None = None
        self._tokenizer: Future[LLTokenizer] | None = None
        self._open: dict[int, Constraint] = {}
        self._due: set[Constraint] = set()
        """Those that are being worked on, though their request may have ended."""
        self._accepted: list[tuple[Constraint, int]] = []
        """Tokens that quick ones have been told and nobody works on yet."""
        self._at_once: list[Constraint] = []
        """Those that went on at once."""
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
        constraint = self._open[request.id] = Constraint(request, self._vocab_size, draws_first=self._draws_first)
        self._due.add(constraint)
        self.index()
        self._compiler.submit(self._begin, constraint)

    def accept(self, request_id: int, token_id: int) -> None:
        """The request's answer has one token more; does nothing if it has no grammar."""
        constraint = self._open.get(request_id)
        if constraint is None:
            return
        if constraint.needs_no_mask or constraint.seconds < INSTANT:
            self._tell(constraint, token_id)
            self._at_once.append(constraint)
            return
        self._due.add(constraint)
        if constraint.seconds < PATIENCE:
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
        """What a token is to be chosen from; None for all. It must have landed."""
        constraint = self._open.get(request_id)
        if constraint is None or constraint.draws_first:
            return None
        assert constraint.mask is not None, f"request {request_id} was planned without its mask"
        return constraint.mask

    def drawn_first(self, request_id: int) -> Constraint | None:
        """The grammar of a request whose tokens are chosen without a mask."""
        constraint = self._open.get(request_id)
        return constraint if constraint is not None and constraint.draws_first else None

    def error(self, request_id: int) -> str | None:
        """What is wrong with the grammar of a request that is open."""
        constraint = self._open.get(request_id)
        return None if constraint is None else constraint.error

    def drop(self, request_id: int) -> None:
        """The request has ended. A mask that is being worked out for it is nobody's."""
        self._open.pop(request_id, None)

    def landed(self) -> list[Constraint]:
        """Those that have landed since this was last asked; waits for those that will soon."""
        self.begin()
        landed = [constraint for constraint in self._at_once if self._open.get(constraint.request.id) is constraint]
        self._at_once.clear()
        until = monotonic() + PATIENCE if self._due else 0
        while self._due:
            patience = until - monotonic() if any(constraint.seconds < PATIENCE for constraint in self._due) else 0
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
        self._tell(constraint, token_id)
        self._landed.put(constraint)

    @staticmethod
    def _tell(constraint: Constraint, token_id: int) -> None:
        try:
            constraint.accept(token_id)
        except BaseException as error:
            constraint.give_up(error)


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
