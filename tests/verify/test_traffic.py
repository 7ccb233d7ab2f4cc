"""Who is there: subjects at the edges of pages and splits, the same for the same seed, neighbours before and after."""

from dataclasses import replace
from functools import cache

import pytest

from parkway.backends.cpu.library import SPLIT_TOKENS
from parkway.backends.cuda.attention_work import SPLIT
from parkway.plan.pages import pages_for
from parkway.plan.step import PAGE_TOKENS
from parkway.verify.cast import BRIEF, SIZES, Cast, Chat, Mode
from parkway.verify.configurations import AXES, OFTEN, SELDOM, Configuration, Device, Prefix, covering, sample
from parkway.verify.traffic import EARLY, Occasion, occasions

CROWDED = Configuration(15, 7, 4, 1, "off", "sampled", OFTEN, "copied", "sync", "cold")
KINDS: list[tuple[Device, Mode]] = [(device, mode) for device in SIZES for mode in SIZES[device]]
every_kind = pytest.mark.parametrize(("device", "mode"), KINDS)


@cache
def cast(device: Device = "cpu", mode: Mode = "full", seed: int = 3) -> Cast:
    return Cast.drawn(SIZES[device][mode], vocab_size=300, seed=seed)


@cache
def tried(device: Device, mode: Mode) -> list[Occasion]:
    return occasions(cast(device, mode), [*covering(AXES[device], 3), *sample(AXES[device], 3, 40)])


def before(occasion: Occasion) -> list[Chat]:
    """Those that the subject waits for."""
    return [
        visit.chat
        for visit in occasion.visits
        if (visit.first and not occasion.configuration.squeezed) or 0 < visit.first <= BRIEF
    ]


def subjects_of(occasion: Occasion, device: Device, mode: Mode) -> list[Chat]:
    there, configuration = cast(device, mode), occasion.configuration
    return (there.lasting if configuration.park_every == SELDOM else there.subjects)[configuration.sampling]


def following(prefix: Prefix) -> list[tuple[Occasion, Chat, list[Chat]]]:
    """An occasion for every subject that is sampled, its subject, and who was there before."""
    subjects = cast().subjects["sampled"]
    made = occasions(cast(), [replace(CROWDED, prefix=prefix)] * len(subjects))
    return [(each, subject, before(each)) for each, subject in zip(made, subjects, strict=True)]


def test_subjects_end_at_the_edges() -> None:
    splits: dict[Device, int] = {"cpu": SPLIT_TOKENS, "cuda": SPLIT}
    for device, split in splits.items():
        lengths = set(SIZES[device]["full"].subject_prompts)
        assert {PAGE_TOKENS - 1, PAGE_TOKENS, PAGE_TOKENS + 1} <= lengths
        assert any(split < length < split + PAGE_TOKENS for length in lengths)
        assert any(2 * split < length for length in lengths)
    assert {SPLIT - 1, SPLIT, SPLIT + 1, 2 * SPLIT + 1} <= set(SIZES["cuda"]["full"].subject_prompts)


def test_the_seed_decides() -> None:
    assert cast() == cast.__wrapped__()
    assert cast().chats != cast(seed=4).chats
    one, other = occasions(cast(), [CROWDED] * 2)
    assert [one, other] == occasions(cast(), [CROWDED] * 2)
    assert one.visits != other.visits


def test_tokens_are_of_the_vocabulary() -> None:
    assert {token for chat in cast().chats for token in chat.prompt} <= set(range(300))


@every_kind
def test_every_chat_comes(device: Device, mode: Mode) -> None:
    all_chats = cast(device, mode)
    there = {visit.chat for occasion in tried(device, mode) for visit in occasion.visits}
    assert there <= set(all_chats.chats)
    assert there >= {chat for chats in (*all_chats.subjects.values(), *all_chats.crowds) for chat in chats}
    assert there & set(all_chats.twins.values())
    assert there & set(all_chats.doubles.values()) or not all_chats.doubles


@every_kind
def test_there_are_as_many_as_the_configuration_says(device: Device, mode: Mode) -> None:
    for occasion in tried(device, mode):
        chats = [visit.chat for visit in occasion.visits]
        late = occasion.configuration.squeezed
        assert len(set(chats)) == len(chats) == 1 + occasion.configuration.beside + len(before(occasion)) + late
        assert len([chat for chat in chats if chat in subjects_of(occasion, device, mode)]) == 1


def test_neighbours_come_before_and_after_the_subject() -> None:
    subjects = cast().subjects["sampled"]
    before = after = 0
    for occasion in occasions(cast(), [CROWDED] * 20):
        (at,) = (visit.step for visit in occasion.visits if visit.chat in subjects)
        before += sum(visit.step < at for visit in occasion.visits)
        after += sum(visit.step > at for visit in occasion.visits)
    assert before
    assert after


def test_nobody_is_there_before_a_cold_subject() -> None:
    assert not any(earlier for _, _, earlier in following("cold"))


def test_a_twin_comes_and_goes_or_stays() -> None:
    gone = 0
    for occasion, subject, (*_, twin) in following("cached"):
        (visit,) = (visit for visit in occasion.visits if visit.chat == twin)
        assert visit.first == twin.sampling.max_tokens
        gone += visit.first < occasion.configuration.park_every
        assert (twin.prompt, twin.seed == subject.seed) == (subject.prompt, False)
        assert twin.sampling.temperature not in (0, subject.sampling.temperature)
    assert gone == len(cast().twins)
    for occasion, subject, (*_, twin) in following("shared"):
        (visit,) = (visit for visit in occasion.visits if visit.chat == twin)
        assert (visit.first, twin.prompt, twin.sampling.temperature) == (1, subject.prompt, 0)
        assert twin.sampling.max_tokens == subject.sampling.max_tokens


@pytest.mark.parametrize("prefix", ["cached", "shared"])
def test_a_double_has_the_same_pages_behind_another(prefix: Prefix) -> None:
    doubles = 0
    for _, subject, (*earlier, _) in following(prefix):
        assert bool(earlier) == (len(subject.prompt) > 2 * PAGE_TOKENS)
        for double in earlier:
            assert double.prompt[:PAGE_TOKENS] != subject.prompt[:PAGE_TOKENS]
            assert double.prompt[PAGE_TOKENS:] == subject.prompt[PAGE_TOKENS:]
            doubles += 1
    assert doubles


@pytest.mark.parametrize("prefix", ["cached", "shared"])
def test_they_come_one_by_one_before_the_subject(prefix: Prefix) -> None:
    for occasion, subject, earlier in following(prefix):
        steps = {visit.chat: visit.step for visit in occasion.visits}
        assert [steps[chat] for chat in earlier] == list(range(len(earlier)))
        assert steps[subject] >= len(earlier)


def test_a_crowd_comes_at_once_or_bit_by_bit() -> None:
    steps = [{visit.step for visit in occasion.visits} for occasion in occasions(cast(), [CROWDED] * 20)]
    assert 3 < sum(len(each) == 1 for each in steps) < 17


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_neighbours_differ(device: Device) -> None:
    for chats in cast(device).crowds:
        assert len(chats) == max(AXES[device].beside)
        assert len({len(chat.prompt) for chat in chats}) > 5
        assert len({chat.sampling for chat in chats}) > 5
        assert {bool(chat.sampling.temperature) for chat in chats} == {True, False}
    assert {chat.sampling.prompt_logprobs for chat in cast(device).crowds[-1]} == {None, 1}


@every_kind
def test_some_of_all_parts_have_edits_and_a_history(device: Device, mode: Mode) -> None:
    there = cast(device, mode)
    for chats in (there.subjects["sampled"], *there.crowds):
        hows = [chat.sampling for chat in chats]
        assert any(how.needs_history for how in hows)
        assert not all(how.needs_history or how.logit_bias for how in hows)


@every_kind
def test_no_long_prompt_is_computed_token_by_token(device: Device, mode: Mode) -> None:
    for occasion in tried(device, mode):
        if occasion.configuration.chunk == 1:
            scorer = cast(device, mode).scorer
            longest = max(len(visit.chat.prompt) for visit in occasion.visits if visit.chat != scorer)
            assert longest <= SIZES[device][mode].longest_by_ones


@every_kind
def test_pages_are_scarce_only_where_chats_are_parked(device: Device, mode: Mode) -> None:
    scarce = 0
    for occasion in tried(device, mode):
        needs = sorted(visit.chat.pages for visit in occasion.visits)[-occasion.configuration.slots :]
        assert occasion.host_pages > sum(needs)
        if occasion.configuration.park_every == 0:
            assert (occasion.pages, occasion.scored_rows) == (sum(needs), None)
        else:
            scarce += occasion.pages < sum(needs)
            assert max(needs) <= occasion.pages
    assert scarce


@every_kind
def test_a_subject_answers_for_all_of_its_cycles(device: Device, mode: Mode) -> None:
    for occasion in tried(device, mode):
        every = occasion.configuration.park_every
        lasting = [visit.chat for visit in occasion.visits if visit.chat.parks(every) == SIZES[device][mode].cycles]
        assert (len(lasting) > 0) == (every > 0)
        assert len([visit for visit in occasion.visits if (visit.chat.sampling.max_tokens or 0) > SELDOM]) <= 2
    assert SIZES[device]["full"].cycles == 6


@every_kind
def test_the_last_page_that_fits_is_taken_when_the_scorer_comes(device: Device, mode: Mode) -> None:
    """Then the subject and the scorer need the whole pool for another page's tokens; after its next park, one more."""
    squeezed = [occasion for occasion in tried(device, mode) if occasion.configuration.squeezed]
    assert squeezed
    for occasion in squeezed:
        *_, subject, scorer = (
            visit for visit in occasion.visits if visit.first > BRIEF or visit.chat == cast(device, mode).scorer
        )
        tokens = len(subject.chat.prompt) + subject.first + EARLY - 1 + PAGE_TOKENS
        assert (subject.first + EARLY) % SELDOM == 0
        assert pages_for(tokens) + scorer.chat.pages == occasion.pages < pages_for(tokens + 1) + scorer.chat.pages
        assert subject.first < (subject.chat.sampling.max_tokens or 0)


def test_steps_have_room_for_a_chunk_or_for_everything() -> None:
    tight = 0
    for occasion in occasions(cast(), [CROWDED] * 20):
        everything = sum(visit.chat.pages for visit in occasion.visits) * PAGE_TOKENS
        assert occasion.step_rows in (4 + 7, 4 + everything)
        tight += occasion.step_rows == 4 + 7
    assert 3 < tight < 17
