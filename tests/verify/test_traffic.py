"""Who is there: subjects at the edges of pages and splits, the same for the same seed, neighbours before and after."""

import pytest

from parkway.backends.cpu.library import SPLIT_TOKENS
from parkway.backends.cuda.attention_work import SPLIT
from parkway.plan.step import PAGE_TOKENS
from parkway.verify.configurations import AXES, Configuration, Device, covering, sample
from parkway.verify.traffic import SIZES, Cast, Mode, Occasion

CROWDED = Configuration(15, 7, 4, 1, "off", "sampled", "often")
KINDS: list[tuple[Device, Mode]] = [(device, mode) for device in SIZES for mode in SIZES[device]]
every_kind = pytest.mark.parametrize(("device", "mode"), KINDS)


def cast(device: Device = "cpu", mode: Mode = "full", seed: int = 3) -> Cast:
    return Cast.drawn(SIZES[device][mode], vocab_size=300, seed=seed)


def occasions(device: Device, mode: Mode) -> list[Occasion]:
    return cast(device, mode).occasions([*covering(AXES[device], 3), *sample(AXES[device], 3, 40)])


def test_subjects_end_at_the_edges() -> None:
    splits: dict[Device, int] = {"cpu": SPLIT_TOKENS, "cuda": SPLIT}
    for device, split in splits.items():
        lengths = set(SIZES[device]["full"].subject_prompts)
        assert {PAGE_TOKENS - 1, PAGE_TOKENS, PAGE_TOKENS + 1} <= lengths
        assert any(split < length < split + PAGE_TOKENS for length in lengths)
        assert any(2 * split < length for length in lengths)
    assert {SPLIT - 1, SPLIT, SPLIT + 1, 2 * SPLIT + 1} <= set(SIZES["cuda"]["full"].subject_prompts)


def test_the_seed_decides() -> None:
    assert cast() == cast()
    assert cast().chats != cast(seed=4).chats
    one, other = cast().occasions([CROWDED] * 2)
    assert [one, other] == cast().occasions([CROWDED] * 2)
    assert one.visits != other.visits


def test_tokens_are_of_the_vocabulary() -> None:
    assert {token for chat in cast().chats for token in chat.prompt} <= set(range(300))


@every_kind
def test_every_chat_comes(device: Device, mode: Mode) -> None:
    there = {visit.chat for occasion in occasions(device, mode) for visit in occasion.visits}
    assert there == set(cast(device, mode).chats)


@every_kind
def test_there_are_as_many_as_the_configuration_says(device: Device, mode: Mode) -> None:
    subjects = [chat for chats in cast(device, mode).subjects.values() for chat in chats]
    for occasion in occasions(device, mode):
        chats = [visit.chat for visit in occasion.visits]
        assert len(set(chats)) == len(chats) == 1 + occasion.configuration.beside
        (subject,) = (chat for chat in chats if chat in subjects)
        assert bool(subject.sampling.temperature) == (occasion.configuration.sampling == "sampled")


def test_neighbours_come_before_and_after_the_subject() -> None:
    subjects = cast().subjects["sampled"]
    before = after = 0
    for occasion in cast().occasions([CROWDED] * 20):
        (at,) = (visit.step for visit in occasion.visits if visit.chat in subjects)
        before += sum(visit.step < at for visit in occasion.visits)
        after += sum(visit.step > at for visit in occasion.visits)
    assert before
    assert after


def test_a_crowd_comes_at_once_or_bit_by_bit() -> None:
    steps = [{visit.step for visit in occasion.visits} for occasion in cast().occasions([CROWDED] * 20)]
    assert 3 < sum(len(each) == 1 for each in steps) < 17


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_neighbours_differ(device: Device) -> None:
    for chats in cast(device).crowds:
        assert len(chats) == max(AXES[device].beside)
        assert len({len(chat.prompt) for chat in chats}) > 5
        assert len({chat.sampling for chat in chats}) > 5
        assert {bool(chat.sampling.temperature) for chat in chats} == {True, False}
        assert {chat.sampling.prompt_logprobs for chat in chats} == {None, 1}


@every_kind
def test_no_long_prompt_is_computed_token_by_token(device: Device, mode: Mode) -> None:
    for occasion in occasions(device, mode):
        if occasion.configuration.chunk == 1:
            longest = max(len(visit.chat.prompt) for visit in occasion.visits)
            assert longest <= SIZES[device][mode].longest_by_ones


@every_kind
def test_pages_are_scarce_only_where_chats_are_replayed(device: Device, mode: Mode) -> None:
    scarce = 0
    for occasion in occasions(device, mode):
        needs = sorted(visit.chat.pages for visit in occasion.visits)[-occasion.configuration.slots :]
        if occasion.configuration.replayed == "never":
            assert (occasion.pages, occasion.give_back_every) == (sum(needs), 0)
        else:
            scarce += occasion.pages < sum(needs)
            assert max(needs) <= occasion.pages <= sum(needs)
            assert 0 < occasion.give_back_every < SIZES[device][mode].subject_answer
    assert scarce


def test_steps_have_room_for_a_chunk_or_for_everything() -> None:
    tight = 0
    for occasion in cast().occasions([CROWDED] * 20):
        everything = sum(visit.chat.pages for visit in occasion.visits) * PAGE_TOKENS
        assert occasion.step_rows in (4 + 7, 4 + everything)
        tight += occasion.step_rows == 4 + 7
    assert 3 < tight < 17
