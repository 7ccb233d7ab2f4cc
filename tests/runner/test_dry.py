"""DRY: what a token would go on with, by its specification and by examples that can be read."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parkway.backends.reference_sampler import repeated
from parkway.request import SamplingParams
from parkway.runner.dry import Dry


def how(**changes: Any) -> SamplingParams:
    return SamplingParams(**{"dry_multiplier": 0.5, "dry_base": 2.0, "dry_allowed_length": 2} | changes)


def text(words: str) -> list[int]:
    return [ord(letter) for letter in words]


def penalties(words: str, **changes: Any) -> dict[str, float]:
    return {chr(token): number for token, number in Dry(how(**changes)).penalties(text(words)).items()}


def test_examples() -> None:
    assert penalties("abcdab") == {"c": 0.5}
    assert penalties("abcdxabc") == {"d": 1.0}
    assert penalties("abcdxabce") == {}
    assert penalties("abxcabyab") == {"x": 0.5, "y": 0.5}
    assert penalties("zabxabyzab") == {"x": 1.0, "y": 0.5}, "the longest counts"
    assert penalties("aaaa") == {"a": 1.0}
    assert penalties("ab") == {}
    assert penalties("abcdab", dry_allowed_length=3) == {}
    assert penalties("abcdab", dry_allowed_length=1) == {"c": 1.0}


def test_breakers_end_a_repetition() -> None:
    colon, run = (ord(":"),), tuple(text("b:"))
    assert penalties("ab:cdab:c") == {"d": 2.0}
    assert penalties("ab:cdab:c", dry_breakers=(colon,)) == {}
    assert penalties("ab:cdeab:cd", dry_breakers=(colon,)) == {"e": 0.5}
    assert penalties("ab:cdeab:cd", dry_breakers=(run,)) == {"e": 0.5}
    assert penalties("ab:cdea:cd", dry_breakers=(run,)) == {"e": 1.0}


def test_only_the_window_counts() -> None:
    assert penalties("abcdab", dry_penalty_last_n=5) == {}
    assert penalties("abcdab", dry_penalty_last_n=6) == {"c": 0.5}
    assert penalties("zabcdzab", dry_penalty_last_n=7) == {"c": 0.5}, "what is compared, too"


drawn_tokens = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    prompt=drawn_tokens,
    answer=drawn_tokens,
    last=st.integers(-1, 40).filter(bool),
    allowed=st.integers(0, 5),
    breakers=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), max_size=2),
    every=st.integers(1, 7),
)
def test_the_lengths_are_those_of_the_specification(
    prompt: list[int], answer: list[int], last: int, allowed: int, breakers: list[tuple[int, ...]], every: int
) -> None:
    """However seldom it is asked: a chat whose tokens are computed again asks for none of them."""
    asked = how(dry_penalty_last_n=last, dry_allowed_length=allowed, dry_breakers=tuple(breakers))
    dry = Dry(asked)
    for count in range(0, len(answer), every):
        tokens = prompt + answer[:count]
        exact = {token: 0.5 * 2.0 ** (length - allowed) for token, length in repeated(tokens, asked).items()}
        assert dry.penalties(tokens) == exact


@pytest.mark.parametrize("base", [1.0, 1.75, 1000.0])
def test_a_penalty_stays_a_number(base: float) -> None:
    made = Dry(how(dry_base=base, dry_multiplier=1000.0)).penalties([5] * 2000)
    assert np.isfinite(np.float32(made[5]))
    assert made[5] == (1000.0 if base == 1 else pytest.approx(3e38, rel=1))


def test_a_long_prompt_that_only_repeats_is_no_more_work_than_another() -> None:
    """Compared token by token, this would take hours."""
    dry = Dry(how(dry_base=1.0001))
    dry.penalties([1] * 60_000)
    for more in range(1, 50):
        assert dry.penalties([1] * (60_000 + more)) == {1: 0.5 * 1.0001 ** (59_999 + more - 2)}
    assert dry.penalties([1] * 60_049 + [2]) == {}


@pytest.mark.parametrize("last", [-1, 40, 500])
def test_an_endless_chat_looks_back_as_far_as_its_context(last: int) -> None:
    """A context shift takes out tokens behind the first ones; what is kept of the others must not grow."""
    everything = np.random.default_rng(0).integers(0, 3, 5000).tolist()
    asked, shed, rooms = how(dry_penalty_last_n=last), 0, set[int]()
    dry = Dry(asked)
    for count in range(100, 5000):
        if count - shed == 300:
            shed += 128
        tokens = everything[:20] + everything[shed + 20 : count]
        window = everything[shed if last < 0 else max(0, count - last) : count]
        exact = {token: 0.5 * 2.0 ** (length - 2) for token, length in repeated(window, asked).items()}
        assert dry.penalties(tokens, shed) == exact
        rooms.add(len(dry._tokens))
    assert max(rooms) <= 2048
