"""How a model file wants positions told: its rope keys → Rope. Every kind of scaling but the dynamic ones, which would
change with the length of a chat."""

import sys

import numpy as np
import numpy.typing as npt

from parkway.backends import Rope
from parkway.backends.quant import decode
from parkway.models.keys import Keys
from parkway.weights.rope import llama3_factors, longrope_magnitude, yarn_factors, yarn_magnitude

Factors = npt.NDArray[np.float32]
_LONG, _SHORT, _FREQS = "rope_factors_long.weight", "rope_factors_short.weight", "rope_freqs.weight"


def rope_of(keys: Keys, head_dim: int) -> Rope:
    """Raises BadFile, or Unsupported naming the kind of scaling."""
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            return _rope(keys, head_dim)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise keys.bad(f"its rope scaling makes no sense: {error}") from error


def _rope(keys: Keys, head_dim: int) -> Rope:
    dims, base = rotated_dims(keys, head_dim), keys.number("rope.freq_base", 10000.0)
    kind = _kind(keys)
    if kind == "yarn":
        return Rope(base, dims, "halves", _yarn(keys, base, dims), _yarn_magnitude(keys))
    if kind == "longrope":
        return Rope(base, dims, "halves", *_longrope(keys, dims))
    if kind == "dynamic":
        base *= keys.number("rope.scaling.alpha") ** (dims / (dims - 2))
    return Rope(base, dims, "halves", _factors(keys, kind, base, dims))


def local_rope(keys: Keys, head_dim: int, base: float) -> Rope:
    """Of layers with a window, which no scaling stretches; `base`: where the file is silent."""
    return Rope(keys.number("rope.freq_base_swa", base), rotated_dims(keys, head_dim), "halves")


def rotated_dims(keys: Keys, head_dim: int) -> int:
    """Lanes of a head that are turned."""
    dims = keys.count("rope.dimension_count", head_dim)
    if dims % 2 or dims > head_dim:
        raise keys.bad(f"{dims} lanes of a head of {head_dim} can't be rotated in pairs")
    return dims


def scaling_name(keys: Keys) -> str:
    """What a person is told about it."""
    kind = _kind(keys)
    if kind == "none" and _FREQS in keys.checkpoint.tensors:
        return f"as {_FREQS} has it"
    factor = keys.value("rope.scaling.factor", keys.value("rope.scale_linear"))
    is_number = isinstance(factor, int | float) and abs(factor) <= sys.float_info.max  # not every kind checks it
    return f"{kind}, factor {factor:g}" if is_number and kind != "none" else kind


def _kind(keys: Keys) -> str:
    """Its own word for it, or by the tensors that only it has."""
    said = keys.value("rope.scaling.type")
    if said is None:
        said = _unsaid_kind(keys)
    if said not in ("none", "linear") and keys.value("rope.scale_linear") not in (None, 0, 1):
        raise keys.unsupported(f"{keys.named('rope.scale_linear')} beside rope scaling {said!r} is not supported")
    if said in ("su", "longrope") or (said == "none" and _LONG in keys.checkpoint.tensors):
        return "longrope"
    if said == "dynamic" and keys.value("rope.scaling.alpha") is not None:
        return "dynamic"
    if said not in ("none", "linear", "llama3", "yarn", "mrope"):
        raise keys.unsupported(f"rope scaling {said!r} is not supported")
    return "none" if said == "mrope" else said  # for text, all its sections have one position


def _unsaid_kind(keys: Keys) -> str:
    """Linear, if there is a factor, as in llama.cpp; not where it only repeats what stored tensors have."""
    if _LONG in keys.checkpoint.tensors:
        return "longrope"
    if keys.value("rope.scaling.factor") is None:
        return "none" if keys.number_or_none("rope.scale_linear") in (0, 1) else "linear"
    is_stored = _FREQS in keys.checkpoint.tensors
    return "none" if is_stored or keys.number_or_none("rope.scaling.factor") in (0, 1) else "linear"


def _factors(keys: Keys, kind: str, base: float, dims: int) -> Factors:
    """What the frequencies are divided by, float32 [dims / 2]."""
    if _FREQS in keys.checkpoint.tensors:
        factors = _stored(keys, _FREQS, dims)
    elif kind == "llama3":
        factors = _llama3(keys, base, dims)
    else:
        factors = np.ones(dims // 2, dtype=np.float32)
    return factors * np.float32(_linear_factor(keys)) if kind == "linear" else factors


def _linear_factor(keys: Keys) -> float:
    """By its name, or by the one that it had before."""
    return keys.number("rope.scaling.factor", keys.number_or_none("rope.scale_linear") or None)


def _llama3(keys: Keys, base: float, dims: int) -> Factors:
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_context_length")
    factor, low, high, context = (keys.number(f"rope.scaling.{name}") for name in names)
    if low >= high:
        named = keys.named("rope.scaling.low_freq_factor"), keys.named("rope.scaling.high_freq_factor")
        raise keys.bad(f"{named[0]} is {low}, not below {named[1]}, {high}")
    return llama3_factors(base, dims, factor=factor, low=low, high=high, context=context)


def _yarn(keys: Keys, base: float, dims: int) -> Factors:
    for key, usual in (("yarn_ext_factor", (None, 1, -1)), ("yarn_log_multiplier", (None, 0))):
        if keys.value(f"rope.scaling.{key}") not in usual:
            raise keys.unsupported(f"{keys.named(f'rope.scaling.{key}')} is not supported")
    return yarn_factors(
        base,
        dims,
        factor=keys.number("rope.scaling.factor"),
        fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
        context=keys.count("rope.scaling.original_context_length", keys.count("context_length")),
        whole=bool(keys.value("rope.scaling.truncate", True)),
    )


def _yarn_magnitude(keys: Keys) -> float:
    """The file's own, or what its factor asks for; times `attn_factor`, which llama.cpp has beside either."""
    return _own_yarn_magnitude(keys) * (keys.number_or_none("rope.scaling.attn_factor") or 1.0)


def _own_yarn_magnitude(keys: Keys) -> float:
    factor = keys.number("rope.scaling.factor")
    if said := keys.number_or_none("rope.scaling.yarn_attn_factor"):
        return said
    scale, all_dims = (keys.number_or_none(f"rope.scaling.{name}") for name in ("mscale", "mscale_all_dim"))
    if scale and all_dims:
        return yarn_magnitude(factor, scale) / yarn_magnitude(factor, all_dims)
    return yarn_magnitude(factor)


def _longrope(keys: Keys, dims: int) -> tuple[Factors, float]:
    """The long factors wherever the file's context needs them: a chat must not change its positions as it grows."""
    context = keys.count("context_length")
    original = keys.count("rope.scaling.original_context_length", context)
    is_long = context > original
    said = keys.value(f"rope.scaling.{'long' if is_long else 'short'}_factor")
    factors = _stored(keys, _LONG if is_long else _SHORT, dims) if said is None else np.asarray(said, np.float32)
    if factors.shape != (dims // 2,):
        raise keys.bad(f"longrope has {factors.size} factors, not {dims // 2}")
    factor = keys.number_or_none("rope.scaling.factor") or context / original
    stated = keys.number_or_none("rope.scaling.attn_factor") or keys.number_or_none("rope.scaling.yarn_attn_factor")
    return factors, stated or longrope_magnitude(factor, original)


def _stored(keys: Keys, name: str, dims: int) -> Factors:
    tensor = keys.checkpoint.tensors.get(name)
    if tensor is None:
        raise keys.bad(f"tensor {name} is missing")
    factors = decode(tensor.name, tensor.type.name, tensor.raw).reshape(-1).copy()
    if factors.shape != (dims // 2,):
        raise keys.bad(f"{name} has {factors.size} values, not {dims // 2}")
    return factors
