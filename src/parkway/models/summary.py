"""What `parkway inspect` tells about a model's layers, or why it can't be served. Reads no weights."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from parkway.backends.quant import check_type
from parkway.errors import StartError
from parkway.models import FAMILIES, architecture_of, build_model
from parkway.models.config import Config
from parkway.models.keys import Keys
from parkway.models.ropes import scaling_name
from parkway.weights.checkpoint import Checkpoint, RawTensor
from parkway.weights.summary import type_totals


def model_facts(checkpoint: Checkpoint) -> dict[str, str]:
    """Name → value as a person reads it, in the order to show."""
    try:
        model = build_model(checkpoint, _OnlyTypes())
    except StartError as error:
        return {"served": f"no: {str(error).removeprefix(f'{checkpoint.path}: ')}"}
    config = model.config
    keys = Keys(checkpoint, FAMILIES[architecture_of(checkpoint)].defaults)
    bases = ", ".join(f"{rope.base:g}" for rope in config.ropes)
    found = {"served": "yes", "layers by kind": _kinds(config), "rope": f"base {bases}; scaling {scaling_name(keys)}"}
    if experts := config.experts:
        found["experts"] = f"{experts.count}, {experts.chosen} a token, {experts.ffn_width} hidden values each"
    if states := config.states:
        found["delta nets"] = f"{states.k_heads} heads of q and k, {states.v_heads} of v, of {states.k_dim} values"
    if model.prediction_head:
        found["prediction head"] = _head(checkpoint, config)
    return found


def _head(checkpoint: Checkpoint, config: Config) -> str:
    at = f"blk.{config.layers}."
    own = type_totals(tensor for name, tensor in checkpoint.tensors.items() if name.startswith(at))
    size = sum(total.total_bytes for total in own) / 2**20
    return f"1 layer more, {size:,.1f} MiB of weights; kept for speculation, nothing uses it yet"


def _kinds(config: Config) -> str:
    kinds = Counter[str]()
    if config.states:
        kinds["delta net"] = config.states.layers
    for how in config.attention:
        place = f"attention to {how.window}" if how.window else "attention to all"
        kinds[place if how.rope else f"{place}, not told positions"] += 1
    return "; ".join(f"{count} {kind}" for kind, count in kinds.items())


class _OnlyTypes:
    """A `Pack` that looks at no tensor's bytes, only whether there is a decoder for its type."""

    def matrix(self, tensor: RawTensor, bias: RawTensor | None = None) -> None:
        for each in (tensor, bias):
            if each is not None:
                check_type(each.name, each.type.name)

    def vector(self, tensor: RawTensor) -> None:
        self.matrix(tensor)

    def stack(self, experts: Sequence[RawTensor], biases: Sequence[RawTensor] | None = None) -> None:
        for each in (*experts, *(biases or ())):
            self.matrix(each)

    def together(self, *matrices: Any) -> None:
        return None
