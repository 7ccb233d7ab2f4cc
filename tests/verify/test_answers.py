"""What counts as a difference: every bit, every token, the ending, and steps that one side lacks."""

import math

import numpy as np

from parkway.request import Output, TokenLogprob
from parkway.verify.answers import Answer, Bits, Difference, first_difference

SECOND = (9, -2.5)


def answer(logprob: float = -1.25, *, token: int = 7, second: tuple[int, float] = SECOND, steps: int = 3) -> Answer:
    """All steps are alike but the last, which is the one asked for."""
    made = Answer()
    for step in range(steps):
        last = step == steps - 1
        value, chosen = (logprob, token) if last else (-0.5, 1)
        made.take(Output(1, [chosen], [TokenLogprob(step, chosen, value, [(chosen, value), second])]))
    made.take(Output(1, finish_reason="length"))
    return made


def test_the_same_answers_do_not_differ() -> None:
    assert first_difference(answer(), answer()) is None
    assert first_difference(answer(math.nan), answer(math.nan)) is None


def test_the_last_bit_counts() -> None:
    near = float(np.nextafter(np.float32(-1.25), np.float32(0)))
    told = Difference("answer token 3", "token 7 at -1.25 (0xbfa00000)", "token 7 at -1.24999988 (0xbf9fffff)")
    assert first_difference(answer(), answer(near)) == told


def test_the_sign_of_zero_counts() -> None:
    assert first_difference(answer(0.0), answer(-0.0))
    assert Bits.of(1, 0.0) != Bits.of(1, -0.0)


def test_the_token_counts() -> None:
    assert first_difference(answer(), answer(token=8))


def test_the_most_probable_count() -> None:
    told = first_difference(answer(steps=1), answer(steps=1, second=(9, -2.25)))
    assert told == Difference(
        "answer token 1",
        "2. most probable token 9 at -2.5 (0xc0200000)",
        "2. most probable token 9 at -2.25 (0xc0100000)",
    )


def test_a_scored_prompt_token_counts() -> None:
    one, other = answer(), answer()
    one.take(Output(1, prompt_logprobs=[TokenLogprob(1, 5, -1.0, [])], finish_reason="length"))
    other.take(Output(1, prompt_logprobs=[TokenLogprob(1, 5, -2.0, [])], finish_reason="length"))
    told = first_difference(one, other)
    assert told
    assert told.where == "prompt token 1"
    assert one.compared_steps == 4


def test_a_step_that_is_missing_or_too_many_counts() -> None:
    lacks = first_difference(answer(-0.5, token=1), answer(-0.5, token=1, steps=2))
    assert lacks == Difference("answer token 3", "token 1 at -0.5 (0xbf000000)", "nothing")
    more = first_difference(answer(-0.5, token=1, steps=2), answer(-0.5, token=1))
    assert more == Difference("answer token 3", "nothing", "token 1 at -0.5 (0xbf000000)")


def test_the_position_counts() -> None:
    one, other = Answer(), Answer()
    one.take(Output(1, [1], [TokenLogprob(4, 1, -1.0, [])], finish_reason="length"))
    other.take(Output(1, [1], [TokenLogprob(5, 1, -1.0, [])], finish_reason="length"))
    assert first_difference(one, other)


def test_the_ending_counts() -> None:
    stopped = answer()
    stopped.take(Output(1, finish_reason="error", error="no room"))
    assert first_difference(answer(), stopped) == Difference("the end", "length", "no room")
