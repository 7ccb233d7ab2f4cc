"""Chat messages to one prompt text, by the Jinja template of the model file, as Hugging Face renders it.

The template is somebody else's program: it runs in a sandbox, within bounds. Knows no token ids.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from parkway.errors import BadRequest, Unsupported
from parkway.text.template_bounds import Sandbox, rendered


class _Generation(Extension):
    """{% generation %} marks the assistant's turns for training; here it only lets its content through."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own declaration)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    # Jinja's own filter escapes HTML, which no model was trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _environment() -> Sandbox:
    made = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _tojson
    made.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return made


class ChatTemplate:
    """A compiled template. bos_token and eos_token are the texts of those tokens, "" where there are none.

    `variables` are told to the template unless a chat's own say otherwise.
    """

    def __init__(
        self, source: str, bos_token: str, eos_token: str, variables: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Raises Unsupported for a template that isn't valid Jinja."""
        try:
            self._template = _environment().bounded(source)
        except jinja2.TemplateSyntaxError as error:
            message = f"the chat template is not valid Jinja, line {error.lineno}: {error}"
            raise Unsupported(message) from error
        self.source = source
        self._variables = variables
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}

    def render(self, messages: Sequence[Mapping[str, Any]], /, **variables: Any) -> str:
        """The prompt text, by default up to where the assistant speaks (add_generation_prompt).

        `variables` go to the template: tools, documents, add_generation_prompt and whatever else it knows. Raises
        BadRequest for what the template refuses or can't digest.
        """
        defaults = {"tools": None, "documents": None, "add_generation_prompt": True, **self._variables}
        try:
            return rendered(self._template, defaults | variables | self._tokens | {"messages": messages})
        except Exception as error:  # the template's own code over the client's values: anything can go wrong
            raise BadRequest("messages", f"the chat template of the model refused the messages: {error}") from error
