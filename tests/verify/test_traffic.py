"""Who is there: subjects at the edges of pages and splits, the same for the same seed, neighbours before and after."""

import pytest

from parkway.backends.cpu.library import SPLIT_TOKENS
from parkway.plan.step import PAGE_TOKENS
from parkway.verify.configurations import Configuration, covering, product
from parkway.verify.traffic import SIZES, Cast

CROWDED = Configuration(15, 7, 4, 1, "sampled", "often")


def cast(mode: str = "full", seed: int = 3) -> Cast:
    return Cast.drawn(SIZES[mode], vocab_size=300, seed=seed)


def test_subjects_end_at_the_edges() -> None:
    lengths = set(SIZES["full"].subject_prompts)
    assert {PAGE_TOKENS - 1, PAGE_TOKENS, PAGE_TOKENS + 1} <= lengths
    assert any(SPLIT_TOKENS < length < SPLIT_TOKENS + PAGE_TOKENS for length in lengths)


def test_the_seed_decides() -> None:
    assert cast() == cast()
    assert cast().chats != cast(seed=4).chats
    one, other = cast().occasions([CROWDED] * 2)
    assert [one, other] == cast().occasions([CROWDED] * 2)
    assert one.visits != other.visits


def test_tokens_are_of_the_vocabulary() -> None:
    assert {token for chat in cast().chats for token in chat.prompt} <= set(range(300))


@pytest.mark.parametrize("mode", ["quick", "full"])
def test_every_subject_is_tried_both_ways(mode: str) -> None:
    there = cast(mode)
    occasions = there.occasions(covering(3))
    assert {visit.chat for occasion in occasions for visit in occasion.visits} == set(there.chats)


def test_neighbours_come_before_and_after_the_subject() -> None:
    subjects = cast().subjects["sampled"]
    before = after = 0
    for occasion in cast().occasions([CROWDED] * 20):
        assert len({visit.chat for visit in occasion.visits}) == 16
        (at,) = (visit.step for visit in occasion.visits if visit.chat in subjects)
        before += sum(visit.step < at for visit in occasion.visits)
        after += sum(visit.step > at for visit in occasion.visits)
    assert before
    assert after


def test_neighbours_differ() -> None:
    chats = cast().neighbours
    assert len({len(chat.prompt) for chat in chats}) > 5
    assert len({chat.sampling for chat in chats}) > 5
    assert {bool(chat.sampling.temperature) for chat in chats} == {True, False}
    assert {chat.sampling.prompt_logprobs for chat in chats} == {None, 1}


def test_pages_are_scarce_only_where_chats_are_replayed() -> None:
    for occasion in cast().occasions(product()):
        needs = sorted(visit.chat.pages for visit in occasion.visits)[-occasion.configuration.slots :]
        if occasion.configuration.replayed == "never":
            assert (occasion.pages, occasion.give_back_every) == (sum(needs), 0)
        else:
            assert max(needs) <= occasion.pages <= sum(needs)
            assert 0 < occasion.give_back_every < SIZES["full"].subject_answer
