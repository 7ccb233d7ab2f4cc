"""What a model needs of the GPU's kernels, as words: what is compiled and checked before its weights are packed."""

from collections.abc import Iterator

from parkway.backends.cuda.attention import MOST_LANES, takes_heads_of
from parkway.backends.cuda.attention_subjects import Shape, need
from parkway.backends.cuda.weights import FLOATS
from parkway.errors import Unsupported
from parkway.models import FAMILIES, Dense, architecture_of
from parkway.models.hybrid import Hybrid
from parkway.models.mixture import Mixture
from parkway.runner.cuda_compile import DELTA_NETS, EXPERTS, GELU
from parkway.weights.checkpoint import Checkpoint


def quantised_types(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The checkpoint's types whose kernels multiply them as they are."""
    kinds = {tensor.type.name for tensor in checkpoint.tensors.values()}
    return tuple(sorted(kinds - set(FLOATS)))


def needs_of(checkpoint: Checkpoint) -> Iterator[str]:
    """What its layers have that not every model's have. Raises BadFile, Unsupported."""
    family = FAMILIES[architecture_of(checkpoint)]
    yield from dict.fromkeys(map(need, _attention_shapes(checkpoint, family)))
    if issubclass(family, Hybrid):
        yield DELTA_NETS
    if issubclass(family, Mixture):
        yield EXPERTS
    if family.activation == "gelu":
        yield GELU


def _attention_shapes(checkpoint: Checkpoint, family: type[Dense]) -> Iterator[Shape]:
    """Of each layer, as far as the check tells them apart. Raises BadFile, Unsupported."""
    config = family.described(checkpoint)
    kv_heads, head_dim = config.kv.kv_heads, config.kv.head_dim
    if not takes_heads_of(head_dim):
        what = f"heads of {head_dim} values; the GPU's kernels need a multiple of 16, {MOST_LANES} at most"
        raise Unsupported(f"{checkpoint.path}: {what}")
    for how in config.attention:
        yield Shape(config.heads, kv_heads, head_dim, how.window, how.soft_cap, family.has_sinks).reached
