"""One HTTP request's answers while they are computed: from the door's outputs to text. Knows no JSON and no HTTP."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import msgspec

from parkway.api.logprobs import Row
from parkway.api.metrics import Metrics
from parkway.engine.door import Door
from parkway.errors import EngineDied, ParkwayError
from parkway.request import Notice, Output, Preempt, Request, TokenLogprob
from parkway.text import TextStream, Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and the text that `echo` shows for them; `hidden` ids in front (BOS) are not in that text."""

    ids: list[int]
    text: str
    hidden: int = 0


class Delta(NamedTuple):
    """What came for one choice: new text, rows of log-probabilities if asked for, the reason if it ended.

    Or a notice and nothing else: text that is held back stays so.
    """

    choice: int
    text: str
    rows: list[Row]
    finish_reason: str | None
    notice: Notice | None = None


class Choice:
    """One answer being received. `echo` puts the prompt's text and rows before it.

    `preempt` is counted by notices until the engine tells it; it doesn't where a stop string ends the answer.
    """

    def __init__(self, index: int, request: Request, tokenizer: Tokenizer, echo: Prompt | None = None) -> None:
        self.index = index
        self.request = request
        self.answer_tokens = 0
        self.cached_tokens = 0
        self.preempt = Preempt()
        self.finish_reason: str | None = None
        self.last_token_at = 0.0
        self._special_ids = tokenizer.special_ids
        self._text = TextStream(tokenizer, request.sampling.stop)
        self._echo = echo
        self._scored: dict[int, TokenLogprob] = {}

    def take(self, output: Output) -> Delta:
        for scored in output.prompt_logprobs:
            self._scored[scored.position] = scored
        self.cached_tokens += output.cached_tokens
        text, rows = self._take_tokens(output)
        self.finish_reason = "stop" if self._text.stopped else output.finish_reason
        if self._echo is not None and (output.token_ids or self.finish_reason):
            text, rows = self._echo.text + text, [*self._prompt_rows(self._echo), *rows]
            self._echo = None
        return Delta(self.index, text, rows, self.finish_reason)

    def take_notice(self, notice: Notice) -> Delta:
        parks, recomputes, parked_ms = msgspec.structs.astuple(self.preempt)
        parks += notice.state == "preempted"
        recomputes += notice.state == "recomputed"
        parked_ms += notice.waited_ms if notice.state == "resumed" else 0
        self.preempt = Preempt(parks, recomputes, parked_ms)
        return Delta(self.index, "", [], None, notice)

    def _take_tokens(self, output: Output) -> tuple[str, list[Row]]:
        pieces = []
        for token_id in output.token_ids:
            self.answer_tokens += 1
            pieces.append(self._text.push(token_id))
            if self._text.stopped:
                break
        rows = []
        if output.logprobs:
            rows = [self._row(scored) for scored in output.logprobs[: len(pieces)]]
        if output.finish_reason:
            pieces.append(self._text.finish())
            self.preempt = output.preempt
        return "".join(pieces), rows

    def _row(self, scored: TokenLogprob) -> Row:
        return Row(scored.token_id, scored, scored.token_id not in self._special_ids)

    def _prompt_rows(self, prompt: Prompt) -> Iterator[Row]:
        if self.request.sampling.prompt_logprobs is None:
            return
        for position, token_id in enumerate(prompt.ids):
            yield Row(token_id, self._scored.get(position), position >= prompt.hidden)


class Answer:
    """The choices of one HTTP request. The door fills it on the event loop; one task takes out what has come.

    `cancel` may be called at any time and frees the slots; whoever waits in `deltas` then gets `failure`. `on_parked`
    is called in `deltas` when the first of its chats has been parked (True) and when none is any more (False).
    """

    def __init__(self, door: Door, choices: Sequence[Choice], metrics: Metrics) -> None:
        self.choices = choices
        self._door = door
        self._metrics = metrics
        self._open = {choice.request.id: choice for choice in choices}
        self.on_parked: Callable[[bool], None] | None = None
        self._parked: set[int] = set()
        self._arrived: list[Output] = []
        self._waiter: asyncio.Future[None] | None = None
        self._nudged = False
        self._failure: Exception | None = None
        self._began_at = perf_counter()

    @property
    def done(self) -> bool:
        return not self._open and self._failure is None

    @property
    def seed(self) -> int:
        return self.choices[0].request.seed

    @property
    def prompt_tokens(self) -> int:
        """Each prompt once, however many choices it has."""
        return sum(len(each.request.prompt) for each in self._firsts)

    @property
    def cached_tokens(self) -> int:
        """Those of `prompt_tokens` that were not computed: the first choice tells, as others find what it computed."""
        return sum(each.cached_tokens for each in self._firsts)

    @property
    def answer_tokens(self) -> int:
        return sum(choice.answer_tokens for choice in self.choices)

    @property
    def preempt(self) -> Preempt:
        """The parks of all choices together."""
        return Preempt(*map(sum, zip(*(msgspec.structs.astuple(each.preempt) for each in self.choices), strict=True)))

    @property
    def _firsts(self) -> Iterator[Choice]:
        """The first choice of each prompt."""
        return (each for each in self.choices if each.request.choice_index == 0)

    def submit(self) -> None:
        """Starts every choice, or none: raises EngineDied."""
        try:
            for choice in self.choices:
                self._door.submit(choice.request, self._arrive)
        except EngineDied as failure:
            self.cancel(failure)
            raise

    def cancel(self, failure: Exception) -> None:
        """Ends what is still computed; `deltas` raises `failure` from now on. Does nothing once all have ended."""
        if not self._open:
            return
        for request_id in self._open:
            self._door.cancel(request_id)
        self._metrics.finished["error" if isinstance(failure, ParkwayError) else "abort"] += len(self._open)
        self._open.clear()
        self._failure = failure
        self._wake()

    async def deltas(self) -> list[Delta]:
        """Waits until something has come and takes all of it, in order; nothing after a nudge.

        Raises what `cancel` was given.
        """
        while not (self._arrived or self._nudged):
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._nudged = False
        arrived, self._arrived = self._arrived, []
        now = perf_counter()
        return [delta for output in arrived if (delta := self._take(output, now))]

    def nudge(self) -> None:
        """Lets `deltas` return, whether anything has come or not."""
        self._nudged = True
        self._wake()

    def _arrive(self, output: Output) -> None:
        self._arrived.append(output)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _take(self, output: Output, now: float) -> Delta | None:
        choice = self._open.get(output.request_id)
        if choice is None:  # came before the cancel, or after a stop string
            return None
        if output.finish_reason in ("error", "cancelled"):
            self.cancel(output.failure)
            return None
        if output.token_ids:
            self._time(choice, now)
        elif output.notice is not None:
            self._park(output.request_id, output.notice)
            return choice.take_notice(output.notice)
        delta = choice.take(output)
        if delta.finish_reason is not None:
            self._end(choice, output, now)
        return delta

    def _end(self, choice: Choice, output: Output, now: float) -> None:
        del self._open[output.request_id]
        self._unpark(output.request_id)
        if output.finish_reason is None:
            self._door.cancel(output.request_id)
        self._metrics.finished[choice.finish_reason or ""] += 1
        self._metrics.whole.observe(now - self._began_at)

    def _park(self, request_id: int, notice: Notice) -> None:
        if notice.state != "preempted":
            self._unpark(request_id)
            return
        self._parked.add(request_id)
        if len(self._parked) == 1 and self.on_parked is not None:
            self.on_parked(True)

    def _unpark(self, request_id: int) -> None:
        if request_id in self._parked:
            self._parked.remove(request_id)
            if not self._parked and self.on_parked is not None:
                self.on_parked(False)

    def _time(self, choice: Choice, now: float) -> None:
        if choice.last_token_at:
            self._metrics.inter_token.observe(now - choice.last_token_at)
        else:
            self._metrics.first_token.observe(now - self._began_at)
        choice.last_token_at = now
