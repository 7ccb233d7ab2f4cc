"""Seeded chats: the same by seed, within the context, and of the lengths that are told."""

from statistics import fmean, median

import pytest

from simulate.traffic import LEAST_ANSWER, LENGTHS, Chat, traffic


@pytest.mark.parametrize("lengths", LENGTHS)
def test_chats_fit_and_come_by_seed(lengths: str) -> None:
    chats = traffic(lengths, 500, 8192, 7, every=2.0)
    assert chats == traffic(lengths, 500, 8192, 7, every=2.0) != traffic(lengths, 500, 8192, 8, every=2.0)
    assert all(chat.prompt >= 1 and chat.answer >= LEAST_ANSWER for chat in chats)
    assert max(chat.prompt + chat.answer for chat in chats) <= 8192
    assert [chat.at for chat in chats] == sorted(chat.at for chat in chats)
    assert 1.7 < chats[-1].at / len(chats) < 2.3


def test_lengths_do_not_depend_on_arrivals() -> None:
    at_once, spread = traffic("measured", 8, 8192, 1), traffic("measured", 8, 8192, 1, every=3.0)
    assert [chat.at for chat in at_once] == [0.0] * 8
    assert [Chat(0.0, chat.prompt, chat.answer) for chat in spread] == at_once


def test_the_measured_lengths_are_those_that_are_told() -> None:
    chats = traffic("measured", 4000, 8192, 0)
    assert 990 < fmean(chat.prompt for chat in chats) < 1010
    assert 1900 < median(chat.answer for chat in chats) < 2100
    assert 0.08 < fmean(chat.answer > 5600 for chat in chats) < 0.12
