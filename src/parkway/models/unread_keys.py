"""Keys that no forward pass reads, though they would change what it computes: refused where they ask for something."""

from typing import Any

from parkway.models.keys import Keys

_USUAL: dict[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.temperature_scale": (0, 1),
    "expert_weights_scale": (0, 1),
    "expert_gating_func": (0, 1),
    "swiglu_clamp_exp": (0,),
}
"""What all families take for granted. Gating functions by llama.cpp's numbers: none said, softmax, sigmoid, softmax of
those chosen."""
_USUAL_OF: dict[str, dict[str, tuple[Any, ...]]] = {
    "gpt-oss": {"expert_gating_func": (0, 1, 3), "swiglu_clamp_exp": (7,)},
    "granite": {"rope.scaling.finetuned": (True,)},
}
"""What some do. To llama.cpp, a Granite that is not finetuned is told no positions, and gpt-oss has its gating function
whatever the file says."""


def refuse_what_is_asked(keys: Keys) -> None:
    """Raises Unsupported naming the key. A value may be one for each layer."""
    for key, usual in {**_USUAL, **_USUAL_OF.get(keys.prefix, {})}.items():
        said = keys.value(key, usual[0])
        for value in said if isinstance(said, list) else [said]:
            if value not in usual:
                raise keys.unsupported(f"{keys.named(key)} = {value!r} is not supported")
