"""The order of samplers that a client of llama-server asks for, and which of them it leaves out. Knows no request."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import PlainValidator

from parkway.errors import BadRequest

ORDER = ("penalties", "temperature", "top_k", "top_p", "min_p")
"""What is built, as it is applied."""
_NEUTRAL: dict[str, dict[str, float]] = {
    "penalties": {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    "temperature": {"temperature": 1.0},
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
}
_OFF = frozenset({"dry", "top_n_sigma", "typ_p", "typical_p", "xtc"})
"""Not built, and refused by their own fields if those switch them on."""
_LETTERS = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
} | {
    "x": "xtc",
    "t": "temperature",
    "i": "infill",
    "a": "adaptive_p",
}


def _samplers(value: Any) -> list[str]:
    if isinstance(value, str):
        return [_LETTERS.get(letter, letter) for letter in value]
    if isinstance(value, list) and len(value) <= 32 and all(isinstance(each, str) for each in value):
        return value
    raise ValueError("must be a list of names of samplers, or a string of their letters")


Samplers = Annotated[list[str], PlainValidator(_samplers, json_schema_input_type=str | list[str])]


def switched_off(names: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of samplers that are not among `names`, with values that do nothing; `values` are those of all.

    Raises BadRequest for an order that would give other answers than ours, and for a sampler that is not built.
    """
    for name in names:
        if name not in ORDER and name not in _OFF:
            raise BadRequest("samplers", f"samplers: {name[:40]!r} is not supported; there are {', '.join(ORDER)}")
    off = {field: value for name in ORDER if name not in names for field, value in _NEUTRAL[name].items()}
    active = [name for name in names if name in ORDER and _acts(name, {**values, **off})]
    if not {"top_p", "min_p"} & set(active):
        active = [name for name in active if name != "temperature"]  # top_k finds the same tokens at any
    if [name for name in ORDER if name in active] != active:
        told = ", ".join(ORDER)
        raise BadRequest("samplers", f"samplers: the order is {told}; leave samplers out or send it in this order")
    return off


def _acts(name: str, values: Mapping[str, Any]) -> bool:
    if name != "penalties" and not values["temperature"]:
        return False  # the most probable token is the same in any order
    return any(values[field] != neutral for field, neutral in _NEUTRAL[name].items())
