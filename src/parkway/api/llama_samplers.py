"""The order of samplers that a client of llama-server asks for, and which of them it leaves out. Knows no request."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import PlainValidator

from parkway.errors import BadRequest
from parkway.request import SamplingParams
from parkway.runner.chain import ORDER, steps_of

USUAL = ("penalties", "dry", "temperature", "top_k", "top_p", "min_p")
"""The order where nobody asks for another."""
_MOST = 32
_NEUTRAL: dict[str, dict[str, float]] = {
    "penalties": {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    "dry": {"dry_multiplier": 0.0},
    "top_n_sigma": {"top_n_sigma": -1.0},
    "top_k": {"top_k": 0},
    "typ_p": {"typical_p": 1.0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "xtc": {"xtc_probability": 0.0},
    "temperature": {"temperature": 1.0, "dynatemp_range": 0.0},
}
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
_OTHER_NAMES = {"typical_p": "typ_p", "typical": "typ_p", "temp": "temperature", "nucleus": "top_p"}
_OTHER_NAMES |= {"top_nsigma": "top_n_sigma"}


def _samplers(value: Any) -> list[str]:
    if isinstance(value, str):
        names = value.split(";") if ";" in value or _name(value) in _NEUTRAL else [_LETTERS.get(c, c) for c in value]
    else:
        names = value
    if isinstance(names, list) and len(names) <= _MOST and all(isinstance(each, str) for each in names):
        return [_name(each) for each in names]
    raise ValueError(f"must be a list of at most {_MOST} names of samplers, or a string of their letters")


def _name(text: str) -> str:
    spelled = text.strip().replace("-", "_")
    return _OTHER_NAMES.get(spelled, spelled)


Samplers = Annotated[list[str], PlainValidator(_samplers, json_schema_input_type=str | list[str])]


def ordered(how: SamplingParams, names: Sequence[str]) -> SamplingParams:
    """By these samplers in this order; those that are not among them are off.

    Raises BadRequest for a sampler that there isn't, and for penalties behind what chooses among tokens.
    """
    for name in names:
        if name not in _NEUTRAL:
            raise BadRequest("samplers", f"samplers: {name[:40]!r} is not supported; there are {', '.join(ORDER)}")
    off = {field: value for name in ORDER if name not in names for field, value in _NEUTRAL[name].items()}
    made = replace(how, samplers=tuple(names), **off)
    _check_penalties(list(_active(names, made)), made)
    return replace(made, samplers=()) if steps_of(made) is None else made


def order_of(how: SamplingParams) -> Sequence[str]:
    """The samplers as they are applied."""
    return how.samplers or (USUAL if steps_of(how) is None else ORDER)


def _active(names: Sequence[str], how: SamplingParams) -> Iterator[str]:
    for name in names:
        if any(getattr(how, field) != value for field, value in _NEUTRAL[name].items()):
            yield name


def _check_penalties(active: Sequence[str], how: SamplingParams) -> None:
    """Penalties change logits before anybody chooses among them, repeat_penalty before the others."""
    first = [name for name in active if name in ("penalties", "dry")]
    if list(active[: len(first)]) != first or len(set(first)) < len(first):
        raise BadRequest("samplers", "samplers: penalties and dry must come first, once each")
    if first == ["dry", "penalties"] and how.repeat_penalty != 1:
        raise BadRequest("samplers", "samplers: penalties must come before dry where repeat_penalty is not 1")
