"""Tokens that are drawn before it is known what a grammar allows, and again where they are forbidden."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llguidance import LLTokenizer

from parkway.backends.reference_sampler import Counters, choose, edited
from parkway.request import SamplingParams
from parkway.runner import constraint as module
from parkway.runner.constraint import Constraint, _has
from parkway.runner.constraints import Constraints, tokenizer_of
from parkway.runner.edits import Edits
from parkway.text import ModelText
from parkway.text.grammar import grammar_of, vocabulary_of
from tests.backends.test_sampler import SamplerRig, order
from tests.grammars import allowed, request
from tests.runner.test_constraint import AB, OTHER_STOP, SCHEMAS, SIZE, STOP, TALK, VOCABULARY, A, B, C, lark, with_id


def begun(source: str, **how: Any) -> Constraint:
    asked = request(lark(source), **{"stop_ids": (STOP, OTHER_STOP), **how})
    constraint = Constraint(asked, SIZE, draws_first=True)
    constraint.begin(tokenizer_of(VOCABULARY, SIZE))
    return constraint


def test_masks_are_worked_out_where_a_token_is_forbidden_and_where_the_answer_may_end() -> None:
    constraint = begun('start: "a" "b" "ab" "c"?')
    assert allowed(constraint) == [A, AB]
    assert (constraint.takes(C), constraint.takes(A)) == (False, True)
    constraint.accept(A)
    assert constraint.mask is None
    assert constraint.takes(B)
    assert constraint.mask is None
    constraint.accept(B)
    assert not constraint.takes(STOP)
    assert allowed(constraint) == [A, AB]
    constraint.accept(AB)
    assert (allowed(constraint), constraint.may_end) == ([C, STOP, OTHER_STOP], True)
    assert constraint.takes(STOP)
    constraint.accept(C)
    assert (allowed(constraint), constraint.ended) == ([STOP, OTHER_STOP], False)


def test_a_token_that_ends_the_answer_is_taken_where_the_grammar_names_it() -> None:
    constraint = begun(f'start: <[{TALK}]> "a" <[{STOP}]>')
    assert constraint.takes(TALK)
    constraint.accept(TALK)
    assert (constraint.takes(STOP), constraint.takes(A)) == (False, True)
    constraint.accept(A)
    assert (constraint.takes(OTHER_STOP), constraint.takes(STOP)) == (False, True)


@pytest.mark.parametrize("how", [{"ignore_eos": True}, {"min_tokens": 3}], ids=str)
def test_nor_is_it_taken_before_the_answer_is_long_enough(how: dict[str, Any]) -> None:
    constraint = begun(f'start: "a" <[{STOP}]>', **how)
    assert constraint.takes(A)
    constraint.accept(A)
    assert (constraint.takes(STOP), constraint.error) == (False, "the grammar allows no token")


def test_an_answer_that_no_token_may_end_is_over_when_nothing_can_follow() -> None:
    constraint = begun('start: "a" "b"', stop_ids=())
    for token in (A, B):
        assert constraint.takes(token)
        constraint.accept(token)
    assert (constraint.ended, constraint.error) == (True, None)


@pytest.mark.parametrize("first", [0, 1])
def test_grammars_that_are_slow_are_worked_out_beside_the_steps(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind three waits, of which each token here has two: to look it up, and to go on behind it."""
    constraint = begun('start: ("a" | "b")* "c"')
    for _ in range(first):
        assert constraint.takes(A)
        constraint.accept(A)
    monkeypatch.setattr(module, "PATIENCE", -1.0)
    seen = []
    for _ in range(6):
        seen.append(constraint.needs_no_mask)
        assert constraint.takes(A)
        constraint.accept(A)
    assert seen == [True] * 2 + [False] * 4
    assert allowed(constraint) == [A, B, C, AB]


HOWS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"presence_penalty": 1.0, "logit_bias": ((3, 1.0),)}, True),
    ({"temperature": 0.0, "top_k": 5, "top_p": 0.5, "min_p": 0.1}, True),
    ({"top_k": 5}, False),
    ({"top_p": 0.5}, False),
    ({"min_p": 0.1}, False),
    ({"typical_p": 0.5}, False),
    ({"temperature": 0.0, "mirostat": 2}, False),
]


@pytest.mark.parametrize(("how", "may"), HOWS, ids=str)
def test_only_where_chances_are_the_same(how: dict[str, Any], may: bool) -> None:
    assert Constraint(request("", **how), SIZE, draws_first=True).draws_first == may
    assert not Constraint(request("", **how), SIZE).draws_first


def test_all_of_an_engine_are_drawn_so_or_none() -> None:
    for draws_first in (True, False):
        constraints = Constraints(SIZE, draws_first=draws_first)
        constraints.teach(VOCABULARY)
        constraints.open(with_id(0, 'start: "ab"'))
        while constraints.due:
            constraints.sleep()
            constraints.landed()
        assert (constraints.drawn_first(0) is not None, constraints.mask(0) is None) == (draws_first, draws_first)
        assert (constraints.drawn_first(1), constraints.mask(1), constraints.error(0)) == (None, None, None)
        constraints.close()


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> LLTokenizer:
    vocabulary = vocabulary_of(ModelText.from_path(smollm2).tokenizer)
    return tokenizer_of(vocabulary, len(vocabulary.pieces))


GRAMMARS = [
    *(("json_schema", schema) for schema in SCHEMAS),
    ("json_object", ""),
    ("regex", "([A-Za-z]{2,9} ?){4,30}"),
    ("gbnf", 'root ::= "(" ([a-w] | root | ", ")+ ")"'),
]


@pytest.mark.parametrize(("kind", "source"), GRAMMARS, ids=lambda given: json.dumps(given)[:40])
def test_what_is_taken_is_what_a_mask_allows(tokenizer: LLTokenizer, kind: Any, source: Any) -> None:
    """Of a real vocabulary: what is allowed, up to 60, and as many others, in each of 30 states."""
    draw, size = random.Random(1), tokenizer.vocab_size - 1
    constraint = Constraint(request(grammar_of(kind, source, "x")), size)
    constraint.begin(tokenizer)
    for _ in range(30):
        mask, matcher = constraint.mask, constraint._matcher
        assert mask is not None
        assert matcher is not None
        if constraint.ended:
            break
        right = allowed(constraint)
        tokens = [*draw.sample(right, min(60, len(right))), *(draw.randrange(size) for _ in range(60))]
        taken = [token for token in tokens if matcher.deep_copy().try_consume_tokens([token]) == 1]
        assert taken == [token for token in tokens if _has(mask, token)]
        assert not matcher.is_error()
        constraint.accept(draw.choice(right))


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_chances_are_those_of_the_allowed_tokens(temperature: float) -> None:
    """Also the tokens are those of the specification. With the first draw's number again they would not be."""
    logits, how = np.array([[2.0, 1.5, 1.0, 0.5, 0.0, -1.0]], np.float32), SamplingParams(temperature=temperature)
    mask = np.array([0b111100], np.uint32)
    none = np.empty(0, np.float32)
    edits = Edits(none.astype(np.int32), none, none, none, mask)
    rig = SamplerRig(logits)
    masked = edited(logits[0], none.astype(np.int32), none, none, none, mask).astype(np.float64)
    counters = [Counters(5, position=position) for position in range(20_000)]
    drawn = rig.drawn(0, how, counters)
    again = [at for at, token in enumerate(drawn) if not mask[0] >> token & 1]
    orders = [order(how, counters[at], edits=edits, draw=1) for at in again]
    parts = [orders[i : i + 256] for i in range(0, len(orders), 256)]
    second = [sample.token for part in parts for sample in rig.run([0] * len(part), part)]
    assert second == [choose(masked, how, counters[at], 1) for at in again]
    for at, token in zip(again, second, strict=True):
        drawn[at] = token
    wanted = np.exp(masked / temperature) / np.exp(masked / temperature).sum()
    found = np.bincount(drawn, minlength=6) / len(drawn)
    assert np.abs(found - wanted).max() < 3 * np.sqrt(0.25 / len(drawn))
    same_draw = [choose(masked, how, counters[at], 0) for at in again]
    for at, token in zip(again, same_draw, strict=True):
        drawn[at] = token
    assert np.abs(np.bincount(drawn, minlength=6) / len(drawn) - wanted).max() > 0.02
