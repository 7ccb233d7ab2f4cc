"""One HTTP request's answers while they are computed, as the door tells them. Knows no JSON and no HTTP."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import msgspec

from parkway.api.choice import Choice, Delta
from parkway.api.metrics import Metrics
from parkway.engine.door import Door
from parkway.errors import EngineDied, ParkwayError
from parkway.request import Notice, Output, Preempt


class Answer:
    """The choices of one HTTP request. The door fills it on the event loop; one task takes out what has come.

    `cancel` may be called at any time and frees the slots; whoever waits in `deltas` then gets `failure`. `on_parked`
    is called in `deltas` when the first of its chats has been parked (True) and when none is any more (False). `beside`
    is asked in `deltas` for what comes in front of what the door has told.
    """

    def __init__(self, door: Door, choices: Sequence[Choice], metrics: Metrics) -> None:
        self.choices = choices
        self._door = door
        self._metrics = metrics
        self._open = {choice.request.id: choice for choice in choices}
        self.on_parked: Callable[[bool], None] | None = None
        self.beside: Callable[[], list[Delta]] | None = None
        self._parked: set[int] = set()
        self._arrived: list[Output] = []
        self._waiter: asyncio.Future[None] | None = None
        self._nudged = False
        self._failure: Exception | None = None
        self._began_at = perf_counter()
        self._first_at: float | None = None

    @property
    def done(self) -> bool:
        return not self._open and self._failure is None

    @property
    def open_chats(self) -> int:
        """How many of its choices have not ended."""
        return len(self._open)

    @property
    def reasons(self) -> list[str]:
        """Why each choice ended: stop, length, error, or abort where the client went away."""
        otherwise = "error" if isinstance(self._failure, ParkwayError) else "abort"
        return [choice.finish_reason or otherwise for choice in self.choices]

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
    def reasoning_tokens(self) -> int:
        """Those of `answer_tokens` that were thoughts."""
        return sum(choice.reasoning_tokens for choice in self.choices)

    @property
    def began_at(self) -> float:
        """In seconds of the clock by which choices tell when their tokens came."""
        return self._began_at

    @property
    def prompt_ms(self) -> float:
        """From the request to its first token; 0 before that."""
        return 0.0 if self._first_at is None else (self._first_at - self._began_at) * 1000

    @property
    def answer_ms(self) -> float:
        """From the first token to the latest."""
        if self._first_at is None:
            return 0.0
        return (max(choice.last_token_at for choice in self.choices) - self._first_at) * 1000

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
        deltas = [delta for output in arrived if (delta := self._take(output, now))]
        return deltas if self.beside is None else self.beside() + deltas

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
            choice.first_token_at = now
            self._first_at = self._first_at or now
        choice.last_token_at = now
