"""llguidance within bounds: what it may spend on a grammar, and on a token of it. Knows no request and no step."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

T = TypeVar("T")

MOST_CHARACTERS = 512 * 1024
STACK_BYTES = 512 * 2**20
"""Of the thread that compiles: llguidance calls itself for each rule that refers to another. Only what is used is ever
memory; a chain of MOST_CHARACTERS uses half."""
_STACKS = threading.Lock()
"""The size of new threads' stacks is one number for the whole process."""


def limits() -> LLParserLimits:
    """Bounds that hold for any grammar: a token's work is bounded too, and what goes beyond ends the request."""
    return LLParserLimits(
        max_items_in_row=5_000,
        initial_lexer_fuel=200_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=50_000,
        max_grammar_size=100_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


def compiled(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """At the start of a grammar, or in error. Without the GIL; may take some tenths of a second. Raises ValueError."""
    unforced = _unforced(grammar)
    return beside(lambda: LLMatcher(tokenizer, unforced, log_level=0, limits=limits()))


def fault(grammar: str) -> str:
    """What is wrong with a grammar around something of a client's; "" if nothing is. Ignores special tokens."""
    if len(grammar) > MOST_CHARACTERS:
        return f"it has {len(grammar)} characters, more than {MOST_CHARACTERS}"
    return beside(lambda: LLMatcher.validate_grammar(grammar, limits=limits()))


def beside(compile_: Callable[[], T]) -> T:
    """Calls it on a thread whose stack is large enough for any grammar that passes the bounds, and returns its result.

    Raises RuntimeError if there is no room for such a thread.
    """
    with ThreadPoolExecutor(1) as thread:
        with _STACKS:
            before = threading.stack_size(STACK_BYTES)
            try:
                result = thread.submit(compile_)  # starts the thread
            finally:
                threading.stack_size(before)
        return result.result()


def _unforced(grammar: str) -> str:
    """The grammar without tokens that are forced. Where its text is certain llguidance would choose the tokens itself,
    by a tokenizer that there is not below the text; a model does it as it was trained."""
    whole = json.loads(grammar)
    return json.dumps({**whole, "grammars": [_unforced_part(part) for part in whole["grammars"]]})


def _unforced_part(part: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in part.items() if key not in ("lark_grammar", "json_schema")}
    source = part.get("lark_grammar") or "start: %json " + json.dumps(part.get("json_schema"))
    return {**rest, "lark_grammar": source + '\n%llguidance {"no_forcing": true}\n'}
