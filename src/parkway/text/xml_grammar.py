"""Lark of arguments that are written with a tag for each parameter, by the tool's schema. Knows no call around them."""

import json
from collections.abc import Mapping
from typing import Any

from parkway.errors import BadRequest
from parkway.text.call_grammar import json_lark
from parkway.text.parts import Tool
from parkway.text.xml_calls import VALUE_END, allowed_types

_PLAIN = {"type", "description", "title", "default", "examples", "enum", "const", "minLength", "maxLength"}


def xml_arguments(tool: Tool, index: int) -> tuple[str, str]:
    """Lark of the parameters in the schema's order, those that aren't required perhaps; and the rules that it needs."""
    properties = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", ())
    parameters, rules = [], []
    for number, (key, schema) in enumerate(properties.items()):
        rule = f"value_{index}_{number}"
        tagged = f"{json.dumps(f'<parameter={key}>' + chr(10), ensure_ascii=False)} {rule}"
        parameters.append(tagged if key in required else f"({tagged})?")
        rules.append(_value_rule(rule, tool, key, schema))
    return " ".join(parameters), "\n".join(rules)


def _value_rule(rule: str, tool: Tool, key: str, schema: Any) -> str:
    """A value and its end tag."""
    end = json.dumps(f"\n{VALUE_END}\n")
    if allowed_types(schema) != {"string"}:
        return f"{rule}: {json_lark(_with_definitions(schema, tool.parameters))} {end}"
    if unknown := schema.keys() - _PLAIN:
        raise BadRequest("tools", f"{tool.name}: {key} has {', '.join(sorted(unknown))}, which can't be honoured")
    if values := schema.get("enum", [schema["const"]] if "const" in schema else None):
        return f"{rule}: ({' | '.join(json.dumps(each, ensure_ascii=False) for each in values)}) {end}"
    most = schema.get("maxLength", "")
    return f"{rule}[suffix={end}]: /(?s:.{{{schema.get('minLength', 0)},{most}}})/"


def _with_definitions(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """The schema on its own: with what its references may point to."""
    definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return definitions | dict(schema if isinstance(schema, Mapping) else {})
