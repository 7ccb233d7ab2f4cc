"""What a grammar allows behind an answer's tokens, and when the answer is over."""

import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLTokenizer

from parkway.request import Request, Vocabulary
from parkway.runner import constraints as module
from parkway.runner.constraint import Constraint
from parkway.runner.constraints import Constraints, tokenizer_of
from parkway.text import ModelText
from parkway.text.grammar import grammar_of, vocabulary_of
from tests.grammars import allowed, request

A, B, C, AB, EMPTY, TALK, STOP, OTHER_STOP = range(8)
VOCABULARY = Vocabulary([b"a", b"b", b"c", b"ab", b"", b"<talk>", b"<stop>", b"c"], frozenset({TALK, STOP, OTHER_STOP}))
SIZE = 10
"""The model has logits for two ids that are no token."""


def lark(source: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": source}]})


def begun(source: str, **how: Any) -> Constraint:
    constraint = Constraint(request(lark(source), **{"stop_ids": (STOP, OTHER_STOP), **how}), SIZE)
    constraint.begin(tokenizer_of(VOCABULARY, SIZE))
    return constraint


def test_what_is_allowed_are_tokens_and_at_the_end_those_that_end_the_answer() -> None:
    constraint = begun('start: "ab" "b"?')
    assert allowed(constraint) == [A, AB]
    constraint.accept(AB)
    assert allowed(constraint) == [B, STOP, OTHER_STOP]
    constraint.accept(B)
    assert allowed(constraint) == [STOP, OTHER_STOP]
    assert (constraint.ended, constraint.error) == (False, None)


def test_a_special_token_is_no_text_and_one_without_bytes_is_never_allowed() -> None:
    assert allowed(begun("start: /(?s:.)+/")) == [A, B, C, AB]


def test_a_grammar_may_name_special_tokens_those_that_end_the_answer_too() -> None:
    constraint = begun(f'start: <[{TALK}]> "a" <[{STOP}]>')
    assert allowed(constraint) == [TALK]
    constraint.accept(TALK)
    constraint.accept(A)
    assert allowed(constraint) == [STOP]


@pytest.mark.parametrize("how", [{"ignore_eos": True}, {"stop_ids": ()}, {"min_tokens": 9}], ids=str)
def test_an_answer_that_no_token_may_end_is_over_when_nothing_can_follow(how: dict[str, Any]) -> None:
    constraint = begun('start: "a" "b"?', **how)
    constraint.accept(A)
    assert (allowed(constraint), constraint.ended) == ([B], False)
    constraint.accept(B)
    assert (allowed(constraint), constraint.ended, constraint.error) == ([], True, None)


def test_what_ends_the_answer_is_forbidden_until_it_is_long_enough() -> None:
    constraint = begun('start: "a"*', min_tokens=2)
    for tokens in ([A], [A], [A, STOP, OTHER_STOP], [A, STOP, OTHER_STOP]):
        assert allowed(constraint) == tokens
        constraint.accept(A)


@pytest.mark.parametrize("how", [{"ignore_eos": True}, {"min_tokens": 3}], ids=str)
def test_nor_does_a_grammar_that_names_it_allow_it_before(how: dict[str, Any]) -> None:
    constraint = begun(f'start: "a" <[{STOP}]>', **how)
    constraint.accept(A)
    assert (constraint.ended, constraint.error) == (False, "the grammar allows no token")


def test_a_vocabulary_that_cannot_go_on_is_an_error() -> None:
    constraint = begun('start: "ax"')
    assert allowed(constraint) == [A]
    constraint.accept(A)
    assert (constraint.error, constraint.ended) == ("the grammar allows no token", False)
    assert not constraint.allows(A)


def test_a_token_that_is_not_allowed_is_an_error_and_nothing_follows() -> None:
    constraint = begun('start: "ab"')
    assert (constraint.allows(A), constraint.allows(B), constraint.allows(SIZE - 1)) == (True, False, False)
    constraint.accept(B)
    assert constraint.mask is None
    assert (constraint.error or "").startswith("the grammar gave up: ")


def test_what_is_certain_is_not_forced() -> None:
    """The grammar as a library would have it, with tokens that it chooses."""
    assert allowed(begun('start: "ab"')) == [A, AB]
    constraint = Constraint(request(json.dumps({"grammars": [{"json_schema": {"const": "x"}}]})), 256)
    constraint.begin(tokenizer_of(Vocabulary([bytes([i]) for i in range(256)]), 256))
    assert allowed(constraint) == [ord('"')]


@pytest.mark.parametrize("size", [31, 32, 33, 64])
def test_a_mask_has_a_bit_for_every_logit_and_no_more(size: int) -> None:
    vocabulary = Vocabulary([b"a"] * 40)
    constraint = Constraint(request(lark('start: "a"*')), size)
    constraint.begin(tokenizer_of(vocabulary, size))
    assert constraint.mask is not None
    assert len(constraint.mask) == (size + 31) // 32
    assert allowed(constraint) == [*range(min(40, size))]


def with_id(number: int, source: str) -> Request:
    return Request(id=number, prompt=[1], sampling=request(lark(source)).sampling, seed=0, stop_ids=frozenset({STOP}))


def settled(constraints: Constraints) -> list[Constraint]:
    """Until nothing is due."""
    landed: list[Constraint] = []
    while constraints.due:
        constraints.sleep()
        landed += constraints.landed()
    return landed


def test_the_grammars_of_an_engine_go_on_each_by_itself() -> None:
    constraints = Constraints(SIZE)
    constraints.teach(VOCABULARY)
    for number, source in enumerate(['start: "ab"', 'start: "b" "c"', "start: foo"]):
        constraints.open(with_id(number, source))
    errors = {constraint.request.id: constraint.error for constraint in settled(constraints)}
    assert (errors[0], errors[1], "unknown name" in (errors[2] or "")) == (None, None, True)
    constraints.accept(1, B)
    constraints.accept(7, B)
    [landed] = settled(constraints)
    assert allowed(landed) == [C]
    assert (constraints.allows(0, A), constraints.allows(0, C), constraints.allows(7, C)) == (True, False, True)
    assert constraints.mask(7) is None
    constraints.close()


def test_nobody_has_told_what_the_tokens_stand_for() -> None:
    constraints = Constraints(SIZE)
    constraints.open(with_id(0, 'start: "ab"'))
    assert [each.error for each in settled(constraints)] == [
        "the grammar can't be compiled: nobody has told what the tokens stand for"
    ]
    constraints.close()


def test_a_mask_that_lands_for_a_request_that_has_ended_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id may come again meanwhile."""
    go, begin = threading.Event(), Constraint.begin

    def slow(constraint: Constraint, *how: Any) -> None:
        go.wait(60)
        begin(constraint, *how)

    monkeypatch.setattr(Constraint, "begin", slow)
    constraints = Constraints(SIZE)
    constraints.teach(VOCABULARY)
    constraints.open(with_id(0, 'start: "ab"'))
    constraints.drop(0)
    again = with_id(0, 'start: "b"')
    constraints.open(again)
    assert constraints.landed() == []
    go.set()
    [landed] = settled(constraints)
    assert landed.request is again
    assert constraints.allows(0, B)
    constraints.close()


def test_a_panic_of_the_library_ends_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        pass

    def panic(*_: Any) -> None:
        raise Panic("planted")

    constraints = Constraints(SIZE)
    constraints.teach(VOCABULARY)
    for number in (0, 1):
        constraints.open(with_id(number, 'start: "ab"'))
    settled(constraints)
    monkeypatch.setattr(Constraint, "_work_out", panic)
    constraints.accept(0, A)
    [landed] = settled(constraints)
    assert (landed.error, landed.mask) == ("the grammar gave up: planted", None)
    assert constraints.allows(1, A)
    constraints.close()


def test_threads_share_the_masks_of_a_step_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others land while one takes long."""
    monkeypatch.setattr(module, "cores", lambda: frozenset({0, 1}))
    constraints, go, work_out = Constraints(SIZE), threading.Event(), Constraint._work_out
    constraints.teach(VOCABULARY)
    for number in range(5):
        constraints.open(with_id(number, 'start: "a" "b"'))
    for constraint in settled(constraints):
        constraint.seconds = 0.001

    def slow(constraint: Constraint) -> None:
        if constraint.request.id == 0:
            go.wait(60)
        work_out(constraint)

    monkeypatch.setattr(Constraint, "_work_out", slow)
    for number in range(5):
        constraints.accept(number, A)
    landed: list[Constraint] = []
    while len(landed) < 4:
        landed += constraints.landed()
    assert sorted(constraint.request.id for constraint in landed) == [1, 2, 3, 4]
    go.set()
    assert [allowed(constraint) for constraint in [*landed, *settled(constraints)]] == [[B]] * 5
    constraints.close()


SCHEMAS: list[dict[str, Any]] = [
    {"type": "array", "items": {"type": "string", "minLength": 3, "maxLength": 12}, "minItems": 40},
    {"type": "array", "items": {"type": "string", "maxLength": 31}, "minItems": 40},
    {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,9}( [A-Z][a-z]{0,9}){0,3}$"}, "minItems": 40},
    {"type": "object", "additionalProperties": {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "number"}]}},
]


@pytest.fixture(scope="module")
def tokenizers(smollm2: Path) -> list[LLTokenizer]:
    """Of a real vocabulary: as it is used, and without anything that is allowed at once."""
    vocabulary = vocabulary_of(ModelText.from_path(smollm2).tokenizer)
    sliced = tokenizer_of(vocabulary, len(vocabulary.pieces))
    return [sliced, sliced.with_slices([])]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_masks_are_the_same_whatever_is_allowed_at_once(
    tokenizers: list[LLTokenizer], schema: dict[str, Any], seed: int
) -> None:
    draw, grammar, size = random.Random(seed), grammar_of("json_schema", schema, "x"), tokenizers[0].vocab_size - 1
    sliced, plain = both = [Constraint(request(grammar), size) for _ in tokenizers]
    for constraint, tokenizer in zip(both, tokenizers, strict=True):
        constraint.begin(tokenizer)
    for _ in range(40):
        assert sliced.mask is not None
        assert plain.mask is not None
        assert (sliced.mask.tobytes(), sliced.may_end) == (plain.mask.tobytes(), plain.may_end)
        if sliced.ended:
            break
        token = draw.choice(allowed(sliced))
        for constraint in both:
            constraint.accept(token)
