"""What config.json says about positions, whichever of its spellings it uses, as one flat object."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parkway.errors import BadFile, Unsupported


def rope_values(path: Path, said: Mapping[str, Any]) -> dict[str, Any]:
    """What older files have under rope_scaling, newer ones under rope_parameters, with rope_theta inside, and for two
    kinds of layers in some. Raises BadFile, Unsupported."""
    rope = said.get("rope_parameters") or said.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise BadFile(path, f"its rope scaling is {type(rope).__name__}, not an object")
    local = {"rope_local_theta": said.get("rope_local_base_freq")}
    if "full_attention" in rope or "sliding_attention" in rope:
        local, rope = _of_two_kinds(path, rope)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    return {**local, **rope, "rope_type": "none" if kind == "default" else kind}


def _of_two_kinds(path: Path, rope: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    nearby, everywhere = (rope.get(kind) or {} for kind in ("sliding_attention", "full_attention"))
    if not isinstance(nearby, dict) or not isinstance(everywhere, dict):
        raise BadFile(path, "its rope parameters by kind of layer are no objects")
    if nearby.get("rope_type", "default") != "default":
        raise Unsupported(f"{path}: rope scaling {nearby['rope_type']!r} in layers with a window is not supported")
    return {"rope_local_theta": nearby.get("rope_theta")}, everywhere
