"""What the settings say for the fields that a request leaves out, filled into its body. Knows no endpoint."""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from parkway.api.constraints import Constrained
from parkway.api.sampling_fields import OTHER_NAMES, Sampled
from parkway.config import RequestDefaults, json_object
from parkway.errors import BadRequest, BadSetting
from parkway.text import Tokenizer
from parkway.text.grammar import grammar_of

Asked = TypeVar("Asked", bound=Sampled)

_AS_THEY_ARE = (
    *("max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "repeat_penalty", "repeat_last_n"),
    *("presence_penalty", "frequency_penalty", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold"),
    *("dynatemp_range", "dynatemp_exponent", "mirostat", "mirostat_tau", "mirostat_eta"),
    *("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "n_keep"),
)
_FLAGS = {"max_tokens": "--predict", "temperature": "--temp", "stop": "--reverse-prompt", "typical_p": "--typical"} | {
    "dynatemp_exponent": "--dynatemp-exp",
    "n_keep": "--keep",
    "mirostat_tau": "--mirostat-ent",
    "mirostat_eta": "--mirostat-lr",
    "dry_sequence_breakers": "--dry-sequence-breaker",
}
_FORMS = ("grammar", "json_schema")


class Defaults:
    """Fields by name, checked as a request's are."""

    def __init__(self, settings: RequestDefaults, tokenizer: Tokenizer) -> None:
        """Raises BadSetting, which names the flag."""
        fields: dict[str, Any] = {name: getattr(settings, name) for name in _AS_THEY_ARE}
        fields |= {
            "ignore_eos": True if settings.ignore_eos == "on" else None,
            "cache_prompt": False if settings.cache_prompt == "off" else None,
            "logit_bias": [_bias(text) for text in settings.logit_bias] or None,
            "stop": list(settings.stop) or None,
            "dry_sequence_breakers": [text for text in settings.dry_sequence_breakers if text != "none"],
            "samplers": settings.samplers or None,
            "reasoning_format": None if settings.reasoning_format == "auto" else settings.reasoning_format,
            "grammar": settings.grammar or None,
            "json_schema": json.loads(settings.json_schema) if settings.json_schema else None,
        }
        if not settings.dry_sequence_breakers:
            fields["dry_sequence_breakers"] = None
        body = _checked({name: value for name, value in fields.items() if value is not None}, tokenizer)
        self._fields = {name: value for name in fields if (value := getattr(body, name, None)) is not None}

    def filled(self, body: Asked) -> Asked:
        """The body, with the fields that it leaves out. Raises BadRequest if it asks for several forms of answers."""
        missing = {name: value for name, value in self._fields.items() if getattr(body, name, "none") is None}
        if body.limit()[1] is not None:
            missing.pop("max_tokens", None)
        if body.repetition_penalty is not None:
            missing.pop("repeat_penalty", None)
            missing.pop("repeat_last_n", None)
        for name, other in OTHER_NAMES.items():
            if getattr(body, other) is not None:
                missing.pop(name, None)
        if _has_form(body):
            for name in _FORMS:
                missing.pop(name, None)
        return body.model_copy(update=missing) if missing else body


def template_variables(settings: RequestDefaults) -> dict[str, Any]:
    """What every chat's template is told unless the request says otherwise."""
    told: dict[str, Any] = json_object(settings.chat_template_kwargs or "{}", "--chat-template-kwargs")
    if settings.reasoning != "auto":
        told["enable_thinking"] = settings.reasoning == "on"
    if settings.reasoning_effort:
        told["reasoning_effort"] = settings.reasoning_effort
    return told


def _has_form(body: Sampled) -> bool:
    """Whether the form of its answer is said: by a constraint, or by tools that may be called."""
    return not isinstance(body, Constrained) or body.constraint() is not None or bool(getattr(body, "tools", None))


def _bias(text: str) -> list[Any]:
    """Raises BadSetting."""
    found = re.fullmatch(r"(\d{1,9})([+-](?:\d+\.?\d*|\.\d+|inf))", text)
    if found is None:
        raise BadSetting("--logit-bias", f"must be ID+NUMBER or ID-NUMBER, not {text!r}")
    return [int(found[1]), False if found[2] == "-inf" else float(found[2])]


def _checked(fields: Mapping[str, Any], tokenizer: Tokenizer) -> Constrained:
    try:
        body = Constrained.model_validate(fields)
        body.sampling(tokenizer)
        if constraint := body.constraint():
            grammar_of(constraint.kind, constraint.source, constraint.param)
        return body
    except ValidationError as error:
        wrong = error.errors()[0]
        raise BadSetting(_flag(str(wrong["loc"][0])), wrong["msg"].removeprefix("Value error, ")) from None
    except BadRequest as error:
        raise BadSetting(_flag(error.param or ""), str(error)) from None


def _flag(name: str) -> str:
    return _FLAGS.get(name, "--" + name.replace("_", "-"))
