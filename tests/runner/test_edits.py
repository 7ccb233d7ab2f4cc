"""What a request asks to be edited: the numbers of its specification, the same however its tokens have come."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from parkway.backends.reference_sampler import edited, penalised
from parkway.errors import BadRequest
from parkway.request import Request, SamplingParams
from parkway.runner.edits import Editor, Edits

VOCAB_SIZE = 50
HOWS = {
    "repeat all": SamplingParams(repeat_penalty=1.3, repeat_last_n=-1),
    "repeat some": SamplingParams(repeat_penalty=0.7, repeat_last_n=7),
    "repeat more than there is": SamplingParams(repeat_penalty=1.1, repeat_last_n=500),
    "repeat none": SamplingParams(repeat_penalty=1.1, repeat_last_n=0, presence_penalty=0.5),
    "presence": SamplingParams(presence_penalty=0.7),
    "frequency": SamplingParams(frequency_penalty=-0.3),
    "bias": SamplingParams(logit_bias=((3, 1.5), (9, -100.0), (3, 0.25))),
    "dry": SamplingParams(dry_multiplier=0.8, dry_allowed_length=1, dry_breakers=((3, 4), (7,))),
    "all": SamplingParams(
        repeat_penalty=1.2,
        repeat_last_n=5,
        presence_penalty=0.4,
        frequency_penalty=0.9,
        logit_bias=((3, -2.0),),
        dry_multiplier=0.5,
        dry_allowed_length=1,
        dry_penalty_last_n=30,
    ),
}
every_how = pytest.mark.parametrize("how", HOWS.values(), ids=HOWS.keys())


def request(how: SamplingParams, prompt: Sequence[int] = (1, 2, 3), stop_ids: Sequence[int] = ()) -> Request:
    return Request(id=0, prompt=list(prompt), sampling=how, seed=0, stop_ids=frozenset(stop_ids))


def sampling(**given: Any) -> SamplingParams:
    return SamplingParams(**given)


def drawn(seed: int, count: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.choice((3, draw.randrange(VOCAB_SIZE))) for _ in range(count)]


def applied(edits: Edits | None, logits: np.ndarray[Any, np.dtype[np.float32]]) -> Any:
    return logits if edits is None else edited(logits, *edits)


@every_how
@pytest.mark.parametrize("prompt_tokens", [1, 4, 5, 6, 20, 70])
def test_the_numbers_are_those_of_the_specification(how: SamplingParams, prompt_tokens: int) -> None:
    prompt, answer = drawn(1, prompt_tokens), drawn(2, 90)
    logits = np.random.default_rng(3).standard_normal(VOCAB_SIZE).astype(np.float32)
    editor = Editor(request(how, prompt), VOCAB_SIZE)
    for count in range(len(answer)):
        made = editor.edits(prompt + answer[:count], prompt_tokens + count, None)
        exact = penalised(logits.astype(np.float64), how, prompt, answer[:count])
        np.testing.assert_allclose(applied(made, logits), exact, rtol=1e-6, atol=1e-6)


@every_how
def test_who_is_asked_seldom_knows_what_who_is_asked_always_knows(how: SamplingParams) -> None:
    """A chat that was parked and computed again, or whose prompt came in pieces, is asked as often as it samples."""
    prompt, answer = drawn(4, 30), drawn(5, 60)
    often, seldom = (Editor(request(how, prompt), VOCAB_SIZE) for _ in range(2))
    logits = np.random.default_rng(6).standard_normal(VOCAB_SIZE).astype(np.float32)
    for count in range(len(answer)):
        known = prompt + answer[:count]
        every = applied(often.edits(known, len(known), None), logits)
        if count % 13 == 0:
            assert applied(seldom.edits(known, len(known), None), logits).tobytes() == every.tobytes()


def test_numbers_that_were_handed_out_do_not_change() -> None:
    editor = Editor(request(HOWS["all"]), VOCAB_SIZE)
    tokens = [1, 2, 3]
    handed = editor.edits(tokens, 3, None)
    assert handed is not None
    before = [each.copy() for each in handed[:4]]
    for token in range(VOCAB_SIZE):
        tokens.append(token)
        tokens.append(3)
        editor.edits(tokens, len(tokens), None)
    for each, was in zip(handed[:4], before, strict=True):
        np.testing.assert_array_equal(each, was)


def test_nothing_is_edited_that_nobody_asks_for() -> None:
    for how in (SamplingParams(), sampling(repeat_last_n=10, top_k=3), sampling(min_tokens=0)):
        assert not Editor.needed(request(how))
    more = (sampling(min_tokens=1), sampling(grammar="{}"), sampling(typical_p=0.5), sampling(mirostat=2))
    for how in (*HOWS.values(), *more):
        assert Editor.needed(request(how))
    assert Editor(request(sampling(grammar="{}")), VOCAB_SIZE).edits([1, 2, 3], 3, None) is None
    assert Editor(request(HOWS["presence"]), VOCAB_SIZE).edits([1, 2, 3], 3, None) is None
    assert Editor(request(sampling(min_tokens=5)), VOCAB_SIZE).edits([1, 2, 3], 3, None) is None


def test_mirostat_allows_as_much_as_the_tokens_so_far_have_left() -> None:
    editor = Editor(request(sampling(mirostat=2, mirostat_tau=3.0, mirostat_eta=0.5)), VOCAB_SIZE)

    def allowed(tokens: Sequence[int]) -> float:
        made = editor.edits(tokens, len(tokens), None)
        assert made is not None
        assert made.chain is not None
        assert (len(made.ids), made.mask) == (0, None)
        return float(made.chain[-1]["a"])

    assert allowed([1, 2, 3]) == allowed([1, 2, 3]) == 6.0, "being asked changes nothing"
    editor.chosen(5.0)
    assert allowed([1, 2, 3, 4]) == 5.0
    editor.chosen(0.0)
    assert allowed([1, 2, 3, 4, 5]) == 6.5


def test_a_chain_needs_no_history() -> None:
    """Unless a sampler in it does: its chats go on while a token is in flight."""
    for how in (
        sampling(typical_p=0.5),
        sampling(xtc_probability=0.5),
        sampling(samplers=("min_p", "top_k"), top_k=3, min_p=0.1),
    ):
        assert not how.needs_history
        made = Editor(request(how), VOCAB_SIZE).edits([1, 2, 3], 9, None)
        assert made is not None
        assert made.chain is not None
    assert sampling(mirostat=1).needs_history
    assert sampling(dry_multiplier=0.5).needs_history
    assert not sampling(dry_multiplier=0.5, dry_penalty_last_n=0).needs_history


def test_what_ends_an_answer_is_forbidden_until_it_is_long_enough() -> None:
    """Also behind a token that is still in flight. An id outside the vocabulary can't come anyway."""
    editor = Editor(request(sampling(min_tokens=2), stop_ids=(7, 4, VOCAB_SIZE)), VOCAB_SIZE)
    for position in (3, 4):
        made = editor.edits([1, 2, 3], position, None)
        assert made is not None
        assert made.ids.tolist() == [4, 7]
        assert np.isneginf(made.offset).all()
    assert editor.edits([1, 2, 3], 5, None) is None
    unending = Editor(request(sampling(min_tokens=2, ignore_eos=True), stop_ids=(7,)), VOCAB_SIZE)
    assert unending.edits([1, 2, 3], 3, None) is None


def test_a_stop_id_that_is_penalised_too_keeps_its_penalty() -> None:
    how = sampling(min_tokens=1, presence_penalty=1.5, logit_bias=((7, 0.25),))
    editor = Editor(request(how, stop_ids=(7,)), VOCAB_SIZE)
    first = editor.edits([1, 2, 3], 3, None)
    second = editor.edits([1, 2, 3, 7], 4, None)
    assert first is not None
    assert second is not None
    assert (first.offset.tolist(), second.offset.tolist()) == ([-np.inf], [-1.25])


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_a_bias_is_a_number(number: float) -> None:
    with pytest.raises(BadRequest, match="logit_bias must be made of numbers"):
        sampling(logit_bias=((1, number),))


def test_a_mask_of_another_vocabulary_is_not_taken() -> None:
    with pytest.raises(AssertionError, match="another vocabulary"):
        Editor(request(sampling(grammar="{}")), VOCAB_SIZE + 16).edits([1, 2, 3], 3, np.zeros(2, np.uint32))


def test_a_mask_comes_through() -> None:
    mask = np.array([5, 0], np.uint32)
    made = Editor(request(sampling(grammar="{}")), VOCAB_SIZE).edits([1, 2, 3], 3, mask)
    assert made is not None
    assert made.mask is mask
    assert not len(made.ids)


def test_a_history_with_a_gap_is_not_taken() -> None:
    with pytest.raises(AssertionError, match="history is not known"):
        Editor(request(HOWS["presence"]), VOCAB_SIZE).edits([1, 2, 3], 4, None)


def test_thousands_of_tokens_are_kept() -> None:
    prompt = list(range(8000))
    made = Editor(request(HOWS["repeat all"], prompt), 10_000).edits(prompt, 8000, None)
    assert made is not None
    assert made.ids.tolist() == prompt
    assert set(made.grow.tolist()) == {float(np.float32(1.3))}
