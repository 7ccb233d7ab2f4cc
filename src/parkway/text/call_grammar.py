"""Grammars of answers that must call a tool or have a form, in llguidance's Lark. Knows no dialect, no vocabulary."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parkway.errors import BadRequest
from parkway.runner.compiled import fault
from parkway.text.grammar import lark
from parkway.text.parts import Tool
from parkway.text.schema import check_multiples, closed

# As models write JSON, and no whitespace that a model could go on with for ever.
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class Around:
    """How calls are written around their arguments; NAME stands for the tool's name."""

    before: str
    after: str = ""
    begin: str = ""
    between: str = "\n"
    end: str = ""

    def text(self, name: str, arguments: str) -> str:
        """One call."""
        return f"{self.begin}{self.before.replace('NAME', _quoted(name))}{arguments}{self.after}{self.end}"


@dataclass(frozen=True, slots=True)
class Thought:
    """`closing` is one marker; `gap`, Lark, is between it and the calls."""

    opening: str
    closing: str
    gap: str = "/\\n{0,2}/"


Written = Callable[[Tool, int], tuple[str, str]]
"""How arguments are written: Lark of those of a tool, and the rules that it needs, with the tool's number in names."""


def calls_rules(
    around: Around,
    tools: Sequence[Tool],
    written: Written,
    *,
    parallel: bool,
    special: Mapping[str, int],
    rule: str = "calls",
) -> str:
    """Lark of a rule for calls."""
    rules = []
    for index, tool in enumerate(tools):
        arguments, further = written(tool, index)
        before = around.before.replace("NAME", _quoted(tool.name))
        before, after = (sequence(text, special) for text in (before, around.after))
        rules.append(f"call_{index}: {before} {arguments} {after}\n{further}")
    more = f"({sequence(around.between, special)} call)*" if parallel else ""
    calls = f"{rule}: {sequence(around.begin, special)} call {more} {sequence(around.end, special)}"
    return "\n".join([calls, "call: " + " | ".join(f"call_{i}" for i in range(len(tools))), *rules])


def held_rules(
    around: Around,
    tools: Sequence[Tool],
    written: Written,
    *,
    marker: str,
    unsaid: Sequence[str],
    parallel: bool,
    special: Mapping[str, int],
) -> str:
    """Lark of the rule `calls`: any text without what is `unsaid`, in which each `marker` begins calls."""
    if around.begin:
        rest = replace(around, begin=around.begin.removeprefix(marker))
    else:  # each call has a marker of its own
        rest = replace(around, before=around.before.removeprefix(marker))
    body = calls_rules(rest, tools, written, parallel=parallel and bool(around.begin), special=special, rule="marked")
    lazy = "" if marker in special else "[lazy]"
    return "\n".join(
        (
            f"calls: (lead marked){'*' if parallel else '?'} TAIL",
            f"lead{lazy}: SAID {sequence(marker, special)}",
            f"SAID: {_text_without(unsaid, special)}",
            f"TAIL: {_text_without((*unsaid, marker), special)}",
            body,
        )
    )


def _text_without(texts: Sequence[str], special: Mapping[str, int]) -> str:
    """Lark of a text in which none of these is; special tokens are in no text anyway."""
    plain = "|".join(re.escape(text).replace("/", "\\/") for text in texts if text not in special)
    return f"/(?s:.*)/ & ~/(?s:.*)({plain})(?s:.*)/" if plain else "/(?s:.*)/"


def answer_grammar(
    calls: str,
    thought: Thought | None,
    *,
    thinking: bool,
    special: Mapping[str, int],
    content: str | None = None,
    before_content: str = "",
) -> str:
    """Serialised: the rule `calls`, unless it is empty, or what is of the serialised grammar `content` after some Lark;
    before it a thought if the answer begins within one or chooses to think. Raises BadRequest for a schema that can't
    be honoured."""
    answers = [*(["calls"] if calls else []), *([f"{before_content} @content"] if content else [])]
    rules = ["start: answer"]
    if thought and thinking:
        rules = [f"start: thought {thought.gap} answer", _thought_rule(thought.closing, special)]
    elif thought:
        opening = sequence(thought.opening, special)
        rules = [f"start: ({opening} thought {thought.gap})? answer", _thought_rule(thought.closing, special)]
    source = "\n".join([*rules, "answer: " + " | ".join(answers), calls])
    return checked(_with_content(source, content) if content else lark(source))


def checked(grammar: str) -> str:
    """A serialised grammar as it is. Raises BadRequest."""
    if message := fault(grammar):
        raise BadRequest("tools", f"no answer can be held to these tools: {message}")
    return grammar


def _with_content(grammar: str, content: str) -> str:
    """A grammar in Lark with a serialised one, which it calls @content."""
    [named] = json.loads(content)["grammars"]
    return json.dumps({"grammars": [{"lark_grammar": grammar}, {**named, "name": "content"}]})


def json_arguments(tool: Tool, _: int) -> tuple[str, str]:
    """A JSON object by the tool's schema."""
    return json_lark({**tool.parameters, "type": "object"}), ""


def json_lark(schema: Mapping[str, Any]) -> str:
    """Raises BadRequest."""
    try:
        check_multiples(schema)
        return f"%json {json.dumps({**closed(schema), 'x-guidance': _SPACING})}"
    except (ValueError, RecursionError) as error:
        raise BadRequest("tools", f"no answer can be held to these tools: {error}") from None


def sequence(text: str, special: Mapping[str, int]) -> str:
    """Lark of a fixed text; a special token in it stands for itself."""
    pieces = re.split("(" + "|".join(map(re.escape, special)) + ")", text) if special else [text]
    return " ".join(_piece(piece, special) for piece in pieces if piece)


def _piece(text: str, special: Mapping[str, int]) -> str:
    return f"<[{special[text]}]>" if text in special else json.dumps(text, ensure_ascii=False)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)[1:-1]


def _thought_rule(closing: str, special: Mapping[str, int]) -> str:
    if closing in special:
        return f"thought: /(?s:.*)/ {_piece(closing, special)}"
    return f"thought[suffix={json.dumps(closing)}]: /(?s:.*)/"
