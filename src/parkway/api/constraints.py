"""What form an answer must have, in every way that clients of OpenAI, llama-server and vLLM ask for one. Knows no
grammar."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PlainValidator

from parkway.api.bodies import Body, Text
from parkway.api.sampling_fields import Sampled
from parkway.errors import BadRequest
from parkway.text.grammar import Kind, grammar_of

_LARK_MARK = "%llguidance"
"""What a grammar for llama-server begins with if it is not GBNF."""


class Constraint(NamedTuple):
    """`param`: the field that asked for it."""

    kind: Kind
    source: str | Mapping[str, Any]
    param: str


def _schema(value: Any) -> dict[str, Any]:
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if isinstance(read, dict):
        return read
    raise ValueError("must be a JSON Schema: an object, or its text")


SchemaOrText = Annotated[dict[str, Any], PlainValidator(_schema, json_schema_input_type=dict[str, Any] | str)]


class JsonSchema(Body):
    """What OpenAI wraps a schema in; it is enforced whether `strict` or not."""

    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema_: dict[str, Any] | None = Field(alias="schema", default=None)

    def constraint(self) -> Constraint | None:
        if self.type == "text":
            return None
        if self.type == "json_schema" and self.json_schema is not None:
            return Constraint("json_schema", self.json_schema.schema_, "response_format.json_schema.schema")
        if self.schema_ is not None:
            return Constraint("json_schema", self.schema_, "response_format.schema")
        if self.type == "json_schema":
            raise BadRequest("response_format.json_schema", "response_format.json_schema is missing")
        return Constraint("json_object", "", "response_format")


class StructuredOutputs(Body):
    """vLLM's; the older `guided_…` fields say the same one by one."""

    json_: SchemaOrText | None = Field(alias="json", default=None)
    json_object: bool | None = None
    regex: Text | None = None
    choice: list[Text] | None = None
    grammar: Text | None = None
    structural_tag: Any = None
    whitespace_pattern: Any = None
    disable_any_whitespace: bool | None = None

    def constraints(self) -> Iterator[Constraint]:
        for name in ("structural_tag", "whitespace_pattern", "disable_any_whitespace"):
            if getattr(self, name):
                raise BadRequest(f"structured_outputs.{name}", f"structured_outputs.{name} is not supported")
        if self.json_object:
            yield Constraint("json_object", "", "structured_outputs.json_object")
        yield from _each("structured_outputs.", self.json_, self.regex, self.choice, self.grammar)


class Constrained(Sampled):
    response_format: ResponseFormat | None = None
    json_schema: dict[str, Any] | None = None
    grammar: Text | None = None
    guided_json: SchemaOrText | None = None
    guided_regex: Text | None = None
    guided_choice: list[Text] | None = None
    guided_grammar: Text | None = None
    structured_outputs: StructuredOutputs | None = None

    def constraint(self) -> Constraint | None:
        """Raises BadRequest if more than one is asked for."""
        asked = [*self._constraints()]
        if len(asked) > 1:
            raise BadRequest(asked[1].param, f"{asked[1].param} can't be combined with {asked[0].param}")
        return asked[0] if asked else None

    def _constraints(self) -> Iterator[Constraint]:
        if self.response_format is not None and (constraint := self.response_format.constraint()) is not None:
            yield constraint
        if self.json_schema is not None:
            yield Constraint("json_schema", self.json_schema, "json_schema")
        if self.grammar:
            yield Constraint("lark" if self.grammar.startswith(_LARK_MARK) else "gbnf", self.grammar, "grammar")
        yield from _each("guided_", self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar)
        if self.structured_outputs is not None:
            yield from self.structured_outputs.constraints()


async def grammar_for(constraint: Constraint | None) -> str | None:
    """Raises BadRequest, naming the field, for one that is invalid or can't be kept."""
    if constraint is None:
        return None
    return await asyncio.to_thread(grammar_of, constraint.kind, constraint.source, constraint.param)


def _each(
    prefix: str, schema: dict[str, Any] | None, regex: str | None, choice: list[str] | None, grammar: str | None
) -> Iterator[Constraint]:
    if schema is not None:
        yield Constraint("json_schema", schema, f"{prefix}json")
    if regex is not None:
        yield Constraint("regex", regex, f"{prefix}regex")
    if choice is not None:
        if not choice:
            raise BadRequest(f"{prefix}choice", f"{prefix}choice must not be empty")
        yield Constraint("regex", "|".join(map(re.escape, choice)), f"{prefix}choice")
    if grammar is not None:
        yield Constraint("gbnf" if "::=" in grammar else "lark", grammar, f"{prefix}grammar")
