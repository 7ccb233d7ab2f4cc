"""Grammars within bounds, on a stack that is large enough."""

import json
import threading
from typing import Any

import pytest

from parkway.runner import compiled as module
from parkway.runner.compiled import beside, compiled, fault
from parkway.runner.constraints import tokenizer_of
from tests.grammars import BYTES


def lark(source: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": source}]})


def references(count: int) -> dict[str, Any]:
    links = {f"a{i}": {"properties": {"x": {"$ref": f"#/$defs/a{i + 1}"}}} for i in range(count)}
    return {"$ref": "#/$defs/a0", "$defs": {**links, f"a{count}": {"type": "string"}}}


@pytest.mark.timeout(20)
def test_a_chain_that_is_longer_than_a_usual_stack_is_compiled() -> None:
    """On a thread with 8 MiB the process would end here."""
    assert fault(lark("start: %json " + json.dumps(references(1500)))) == ""


def test_what_is_too_long_is_not_even_tried() -> None:
    assert "more than" in fault(lark("start: " + '"a"' * 200_000))


def test_what_is_wrong_is_told_and_special_tokens_are_not_looked_at() -> None:
    assert "unknown name" in fault(lark("start: foo"))
    assert fault(lark('start: <[12345678]> "a"')) == ""


def test_grammars_that_refer_to_each_other_stay_so() -> None:
    grammars = [{"lark_grammar": 'start: "<" @inner ">"'}, {"name": "inner", "json_schema": {"const": 1}}]
    matcher = compiled(tokenizer_of(BYTES, 256), json.dumps({"grammars": grammars}))
    assert matcher.consume_tokens([*b"<1>"])
    assert matcher.is_accepting()


def test_other_threads_keep_their_stacks() -> None:
    before = threading.stack_size()
    assert beside(threading.get_ident) != threading.get_ident()
    assert threading.stack_size() == before


def test_no_room_for_the_stack_is_an_error_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STACK_BYTES", 2**60)
    before = threading.stack_size()
    with pytest.raises((RuntimeError, ValueError)):
        beside(threading.get_ident)
    assert threading.stack_size() == before
