"""What Hugging Face's classes call their tensors, and what GGUF does."""

import re

_PLACES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_PARTS = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_output.bias": "self_attn.o_proj.bias",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_qkv.weight": "self_attn.qkv_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    **{f"attn_{x}.{kind}": f"self_attn.{x}_proj.{kind}" for x in "qkv" for kind in ("weight", "bias")},
}
_BEHIND = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
}
_AROUND = {"ffn_norm.weight": "pre_feedforward_layernorm.weight", **_BEHIND}
_EXPERTS = {"ffn_gate_inp.weight": "mlp.gate.weight"}
_SHARED = {
    "ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight",
    **{f"ffn_{part}_shexp.weight": f"mlp.shared_expert.{part}_proj.weight" for part in ("gate", "up", "down")},
}
_DELTA = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_in.weight": "linear_attn.in_proj_qkvz.weight",
    "ssm_ba.weight": "linear_attn.in_proj_ba.weight",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
}
PREDICTING = ("qwen3next", "qwen35", "qwen35moe")
"""Families whose folders may have a prediction head."""
_HEAD = {
    "nextn.eh_proj.weight": "fc.weight",
    "nextn.enorm.weight": "pre_fc_norm_embedding.weight",
    "nextn.hnorm.weight": "pre_fc_norm_hidden.weight",
    "nextn.shared_head_norm.weight": "norm.weight",
    "nextn.embed_tokens.weight": "embed_tokens.weight",
}
"""Of a prediction head, beside those of its layer."""
_OWN: dict[str, dict[str, str]] = {
    "gemma2": _AROUND,
    "gemma3": _AROUND,
    "olmo2": _BEHIND,
    "phi3": {"ffn_up.weight": "mlp.gate_up_proj.weight"},
    "qwen3moe": _EXPERTS,
    "gpt-oss": {
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "attn_sinks.weight": "self_attn.sinks",
        **{f"ffn_gate_inp.{kind}": f"mlp.router.{kind}" for kind in ("weight", "bias")},
    },
    "qwen3next": {**_DELTA, **_EXPERTS, **_SHARED},
    "qwen35": _DELTA,
    "qwen35moe": {**_DELTA, **_EXPERTS, **_SHARED},
}
"""What a family's classes have beside the usual, or in its place."""


class Names:
    """Of one family. `predicting`: which of GGUF's blocks is the layer of the prediction head, in a folder with one."""

    def __init__(self, family: str, predicting: int | None = None) -> None:
        self._own = {**_PARTS, **_OWN.get(family, {})}
        self._gguf = {theirs: ours for ours, theirs in self._own.items()}
        self._gguf_head = {theirs: ours for ours, theirs in _HEAD.items()}
        self._head = None if predicting is None else str(predicting)

    def in_layer(self, name: str) -> tuple[str, str] | None:
        """GGUF's number of the layer that a tensor is of, and the rest of its name."""
        found = re.fullmatch(r"(model|mtp)\.layers\.(\d+)\.(.+)", name)
        if not found:
            return None
        if found[1] == "model":  # one of the head's number would be a layer too many
            return None if found[2] == self._head else (found[2], found[3])
        return (self._head, found[3]) if self._head and found[2] == "0" else None

    def gguf(self, name: str) -> str:
        """GGUF's name of a tensor; its own where GGUF has none. An expert's number stands behind the name."""
        stem, _, kind = name.rpartition(".")
        for ours, theirs in _PLACES.items():
            if stem == theirs:
                return f"{ours}.{kind}"
        if self._head and name.startswith("mtp.") and (part := name.removeprefix("mtp.")) in self._gguf_head:
            return f"blk.{self._head}.{self._gguf_head[part]}"
        found = self.in_layer(name)
        if not found:
            return name
        layer, part = found
        expert = re.fullmatch(r"mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight", part)
        if expert:
            return f"blk.{layer}.ffn_{expert[2]}_exps.{expert[1]}.weight"
        return f"blk.{layer}.{self._gguf[part]}" if part in self._gguf else name

    def own(self, name: str) -> str:
        """The other way round."""
        stem, _, kind = name.rpartition(".")
        if stem in _PLACES:
            return f"{_PLACES[stem]}.{kind}"
        found = re.fullmatch(r"blk\.(\d+)\.(.+)", name)
        if not found:
            return name
        layer, part = found[1], found[2]
        if layer == self._head and part in _HEAD:
            return f"mtp.{_HEAD[part]}"
        at = "mtp.layers.0" if layer == self._head else f"model.layers.{layer}"
        expert = re.fullmatch(r"ffn_(gate|up|down)_exps\.(\d+)\.weight", part)
        if expert:
            return f"{at}.mlp.experts.{expert[2]}.{expert[1]}_proj.weight"
        return f"{at}.{self._own[part]}" if part in self._own else name
