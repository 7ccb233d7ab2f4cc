"""Figures: whose turn it is, when enough has been measured, and what a subject is asked for."""

from collections.abc import Iterator

from parkway.bench.figures import ANSWER_TOKENS, FIGURES, GPU_FIGURES, Effort, Figure, Meter, Timed, take_turns
from parkway.bench.windows import Window


class Scripted:
    """Windows with the shares of others given, and a note of who was asked when."""

    def __init__(self, name: str, log: list[str], others: Iterator[float]) -> None:
        self._name, self._log, self._others = name, log, others

    def window(self) -> Window:
        self._log.append(self._name)
        return Window(float(len(self._log)), next(self._others))


def turns(effort: Effort, **others: list[float]) -> tuple[list[str], dict[str, list[Window]]]:
    log: list[str] = []
    scripted = {name: Scripted(name, log, iter(shares)) for name, shares in others.items()}
    return log, take_turns({name: each.window for name, each in scripted.items()}, effort)


def test_windows_are_taken_in_turns_until_each_has_enough_quiet_ones() -> None:
    log, taken = turns(Effort(quiet_windows=2), a=[0, 0, 0, 0], b=[0, 0.5, 0, 0])
    assert log == ["a", "b"] * 3
    assert taken["a"] == [Window(1.0, 0), Window(3.0, 0), Window(5.0, 0)]
    assert taken["b"] == [Window(2.0, 0), Window(4.0, 0.5), Window(6.0, 0)]


def test_a_machine_that_is_never_quiet_does_not_hold_it_up() -> None:
    log, _ = turns(Effort(quiet_windows=2, most_windows=4), a=[0.5] * 9, b=[0] * 9)
    assert log == ["a", "b"] * 4


def test_out_of_patience_there_is_still_one_window_each() -> None:
    log, _ = turns(Effort(patience_seconds=0.0), a=[0.5] * 9, b=[0.5] * 9)
    assert log == ["a", "b"]


class Recording:
    """A subject that gives a second's work and remembers what it was asked for."""

    pids = ()

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.asked: list[tuple[object, ...]] = []

    def prefill(self, tokens: int, seconds: float) -> Timed:
        self.asked.append(("prefill", tokens, seconds))
        return Timed(self.tokens, 2.0)

    def ready(self, streams: int, answer_tokens: int) -> None:
        self.asked.append(("ready", streams, answer_tokens))

    def decode(self, seconds: float) -> Timed:
        self.asked.append(("decode", seconds))
        return Timed(self.tokens, 2.0)


def test_prefill_is_tokens_over_time() -> None:
    subject = Recording(1024)
    assert Meter(subject, Figure("prefill", 512), 0.25).window().value == 512.0
    assert subject.asked == [("prefill", 512, 0.25)]


def test_every_decode_window_begins_behind_the_prompts() -> None:
    subject = Recording(41)
    meter = Meter(subject, Figure("decode", 4), 0.25)
    assert [meter.window().value, meter.window().value] == [20.5, 20.5]
    assert subject.asked == [("ready", 4, ANSWER_TOKENS), ("decode", 0.25)] * 2


def test_names() -> None:
    names = ["prefill 256", "prefill 512", "decode, 1 stream", "decode, 4 streams", "decode, 16 streams"]
    assert [str(figure) for figure in FIGURES] == names
    assert [str(figure) for figure in GPU_FIGURES] == [*names, "prefill 4096", "decode, 64 streams"]
