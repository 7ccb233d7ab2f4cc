"""The forms of a prompt that llama-server takes. Knows no endpoint and no door."""

from typing import Annotated, Any

from pydantic import PlainValidator

from parkway.api.bodies import unicode_text
from parkway.text import Tokenizer

Mixed = list[str | int]
"""Texts and token ids, one behind the other."""

_SHAPE = 'must be a text, a list of texts and token ids, {"prompt_string": text}, or a list of those, and not empty'


def _prompts(value: Any) -> list[Mixed]:
    """One prompt, or several where a list holds texts only, or lists or objects."""
    if not isinstance(value, list):
        return [_prompt(value)]
    if (
        value
        and all(isinstance(each, str | int) for each in value)
        and not all(isinstance(each, str) for each in value)
    ):
        return [_prompt(value)]
    if value:
        return [_prompt(each) for each in value]
    raise ValueError(_SHAPE)


def _prompt(value: Any) -> Mixed:
    if isinstance(value, dict):
        if value.get("multimodal_data"):
            raise ValueError("multimodal_data is not supported: only text can be read")
        value = value.get("prompt_string")
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts or any(type(each) not in (str, int) for each in parts):
        raise ValueError(_SHAPE)
    return [unicode_text(each) if isinstance(each, str) else each for each in parts]


Prompts = Annotated[list[Mixed], PlainValidator(_prompts, json_schema_input_type=str | list[Any] | dict[str, Any])]


def _content(value: Any) -> Mixed:
    return [] if value == [] else _prompt(value)


Content = Annotated[Mixed, PlainValidator(_content, json_schema_input_type=str | list[str | int])]
"""Of /tokenize: one text, which may be empty, or a list of texts and ids."""


def encoded(parts: Mixed, tokenizer: Tokenizer) -> list[int]:
    """Token ids of a prompt. BOS is put in front of a text only, where the file asks for it."""
    ids = [i for part in parts for i in (tokenizer.encode(part) if isinstance(part, str) else [part])]
    return tokenizer.with_bos(ids) if isinstance(parts[0], str) else ids
