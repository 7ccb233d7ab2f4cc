"""The test knobs: PARKWAY_PREEMPT_* variables that make chats be parked in ways that a server would not choose."""

from collections.abc import Mapping
from typing import TypeVar, get_args

from parkway.config import variable_count
from parkway.errors import BadSetting
from parkway.plan.limits import Knobs, Victim

Value = TypeVar("Value", bound=str)


def knobs_from(environment: Mapping[str, str]) -> Knobs:
    """Raises BadSetting, which names the variable."""
    return Knobs(
        park_every=variable_count(environment, "PARKWAY_PREEMPT_EVERY"),
        exempt_first=_one_of(environment, "PARKWAY_PREEMPT_EXEMPT", ("", "first")) == "first",
        victim=_one_of(environment, "PARKWAY_PREEMPT_POLICY", get_args(Victim)),
        look_ahead=_one_of(environment, "PARKWAY_PREEMPT_PLANNER", ("on", "off")) == "on",
    )


def _one_of(environment: Mapping[str, str], name: str, values: tuple[Value, ...]) -> Value:
    """The variable's value; the first of these unless it is set."""
    text = environment.get(name, values[0])
    for value in values:
        if text == value:
            return value
    raise BadSetting(name, f"must be one of {', '.join(filter(None, values))}, not {text!r}")
