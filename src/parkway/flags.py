"""Flags and variables → settings: the command line first, then PARKWAY_*, then llama-server's variables, then defaults.

Knows no command.
"""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, fields
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from parkway.errors import BadSetting
from parkway.llama_flags import BY_NAME, LLAMA_FLAGS, LlamaFlag

Settings = TypeVar("Settings")

_ON = ("on", "true", "1", "enabled")
_OFF = ("off", "false", "0", "disabled")


class Given(NamedTuple):
    """A text and the flag or variable that it was given to."""

    name: str
    text: str


class _Keep(argparse.Action):
    """Keeps every text with the flag that it came by, in their order; a switch's text is its `const`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        text = " ".join(values) if isinstance(values, list) else values
        given = Given(option_string or "", text or self.const or "")
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), given])


def add_settings(parser: argparse.ArgumentParser, owner: type, *names: str) -> None:
    """A flag for each of these fields of a class of settings, or for all of them."""
    kinds = get_type_hints(owner)
    for field in flagged(owner):
        if names and field.name not in names:
            continue
        how = {"nargs": 0, "const": "on"} if field.metadata["bare"] else {"metavar": _metavar(kinds[field.name])}
        about = f"{field.metadata['about']}{_default(field)}".replace("%", "%%")
        parser.add_argument(*field.metadata["flags"], dest=field.name, action=_Keep, help=about, **how)
        if off := field.metadata["off"]:
            told = f"{field.metadata['flags'][-1]} off"
            parser.add_argument(off, dest=field.name, action=_Keep, nargs=0, const="off", help=told)


def flagged(owner: type) -> tuple[Field[Any], ...]:
    """The fields that have flags."""
    return tuple(field for field in fields(owner) if field.metadata)


def add_llama_flags(parser: argparse.ArgumentParser, *owners: type) -> None:
    """llama-server's names of these settings' flags, and all its other flags. `parser` has the settings' own."""
    taken = {name for owner in owners for field in flagged(owner) for name in _spelled(field)}
    for flag in LLAMA_FLAGS:
        if flag.fate == "honoured" and not flag.field:
            continue
        dest = flag.field or "unheeded"
        for names, const in ((flag.names, "on"), (flag.off_names, "off")):
            if new := [name for name in names if name not in taken]:
                parser.add_argument(*new, dest=dest, action=_Keep, help=argparse.SUPPRESS, **_arity(flag, const))
    parser.set_defaults(llama=True)


def settings_of(
    owner: type[Settings], arguments: argparse.Namespace, environment: Mapping[str, str], **more: Any
) -> Settings:
    """The settings, `more` being those that have no flag. Raises BadSetting.

    A field for which the command has no flag is the class's.
    """
    kinds = get_type_hints(owner)
    chosen: dict[str, Any] = {}
    for field in flagged(owner):
        if field.name in arguments and (given := _given(field, arguments, environment)):
            chosen[field.name] = _value(field, given, kinds[field.name])
    return owner(**chosen, **more)


def heeded(arguments: argparse.Namespace, environment: Mapping[str, str]) -> list[str]:
    """The flags and variables that were given and have no effect. Raises BadSetting for one that is refused."""
    given = [(BY_NAME[each.name], each) for each in arguments.unheeded or ()]
    given += [(flag, each) for flag in LLAMA_FLAGS if not flag.field for each in _from_variables(flag, environment)]
    idle = []
    for flag, each in given:
        if flag.fate == "no effect":
            idle.append(each.name)
        elif flag.fate == "refused" and not flag.asks_for_nothing(each.text):
            raise BadSetting(each.name, flag.why)
    return list(dict.fromkeys(idle))


def without_variables(environment: Mapping[str, str], *owners: type) -> dict[str, str]:
    """The environment less llama-server's variables and those of these settings."""
    own = {f"PARKWAY_{field.name.upper()}" for owner in owners for field in flagged(owner)}
    gone = own.union(name for flag in LLAMA_FLAGS for name in flag.variables)
    return {name: text for name, text in environment.items() if name not in gone}


def as_flags(settings: Any) -> list[str]:
    """What says the same on a command line."""
    told = ((field, getattr(settings, field.name)) for field in flagged(type(settings)))
    return [text for field, value in told for text in _as_flags(field, value)]


def _as_flags(field: Field[Any], value: Any) -> list[str]:
    flag = field.metadata["flags"][-1]
    if value is None or (field.metadata["bare"] and value == "off" and not field.metadata["off"]):
        return []
    if field.metadata["bare"]:
        return [flag if value == "on" else field.metadata["off"]]
    return [text for each in (value if isinstance(value, tuple) else (value,)) for text in (flag, str(each))]


def _given(field: Field[Any], arguments: argparse.Namespace, environment: Mapping[str, str]) -> list[Given]:
    on_line = [read for each in getattr(arguments, field.name) or () if (read := _read(BY_NAME.get(each.name), each))]
    if on_line:
        flags = _spelled(field)
        return [Given(field.metadata["flags"][-1] if name in flags else name, text) for name, text in on_line]
    own = f"PARKWAY_{field.name.upper()}"
    if own in environment:
        return [Given(own, environment[own])]
    rows = [flag for flag in LLAMA_FLAGS if flag.field == field.name] if "llama" in arguments else []
    return [
        read for flag in rows for each in _from_variables(flag, environment) if (read := _read(flag, each)) is not None
    ]


def _read(flag: LlamaFlag | None, given: Given) -> Given | None:
    """What llama-server's text says here. Raises BadSetting."""
    if flag is None:
        return given
    try:
        text = flag.read(given.text)
    except ValueError as error:
        raise BadSetting(given.name, str(error)) from None
    return None if text is None else Given(given.name, text)


def _from_variables(flag: LlamaFlag, environment: Mapping[str, str]) -> Iterator[Given]:
    """LLAMA_ARG_NO_X, whatever its value, switches off what LLAMA_ARG_X would switch."""
    for name in flag.variables:
        no = name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")
        if flag.off_names and no in environment:
            yield Given(no, "off")
        elif name in environment:
            text = environment[name]
            if flag.value:
                yield Given(name, text)
            elif text in _ON or (flag.off_names and text in _OFF):
                yield Given(name, "on" if text in _ON else "off")
            elif text not in _OFF:
                raise BadSetting(name, f"must be one of {', '.join((*_ON, *_OFF))}, not {text!r}")


def _value(field: Field[Any], given: Sequence[Given], kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return tuple(each.text for each in given)
    return parse(*given[-1], kind)


def parse(name: str, text: str, kind: Any) -> Any:
    """The value of a flag or variable called `name`. Raises BadSetting."""
    if get_origin(kind) is UnionType:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise BadSetting(name, f"must be one of {', '.join(get_args(kind))}, not {text!r}")
        return text
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        what = "a whole number" if kind is int else "a number"
        raise BadSetting(name, f"must be {what}, not {text!r}")
    return value


def _spelled(field: Field[Any]) -> tuple[str, ...]:
    off = field.metadata["off"]
    return (*field.metadata["flags"], off) if off else tuple(field.metadata["flags"])


def _default(field: Field[Any]) -> str:
    return "" if field.default in ("", None, ()) else f" (default: {field.default})"


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    return "TEXT" if kind is str or get_origin(kind) is tuple else "N"


def _arity(flag: LlamaFlag, const: str) -> dict[str, Any]:
    if not flag.value:
        return {"nargs": 0, "const": const}
    if flag.value.startswith("["):
        return {"nargs": "?", "const": const}
    takes = flag.value.split()
    return {} if len(takes) == 1 else {"nargs": len(takes)}
