"""Qwen3-Next: its projections for q, k, v and z are one matrix in some files, those for a and b in all."""

from parkway.backends import StateShape
from parkway.models.hybrid import split_qkv
from parkway.models.hybrid_mixture import HybridMixture
from parkway.models.tensors import Tensors
from parkway.weights.checkpoint import RawTensor
from parkway.weights.derived import dealt


class Qwen3Next(HybridMixture):
    def projections(self, tensors: Tensors, at: str, states: StateShape) -> list[RawTensor]:
        width, inner = self.config.width, states.v_heads * states.v_dim
        if tensors.has(f"{at}.ssm_in.weight"):
            first = self._by_head(tensors, f"{at}.ssm_in", states, *_widths(states))
        else:
            first = [*split_qkv(tensors, at, states, width), tensors.raw(f"{at}.attn_gate.weight", inner, width)]
        share = states.v_heads // states.k_heads
        b, a = self._by_head(tensors, f"{at}.ssm_ba", states, share, share)
        return [*first, a, b]

    def _by_head(self, tensors: Tensors, name: str, states: StateShape, *widths: int) -> list[RawTensor]:
        """A matrix whose rows are sorted by heads of k, so many of each kind for one."""
        fused = tensors.raw(f"{name}.weight", states.k_heads * sum(widths), self.config.width)
        return dealt(fused, states.k_heads, *widths)


def _widths(states: StateShape) -> tuple[int, int, int, int]:
    share = states.v_heads // states.k_heads * states.v_dim
    return states.k_dim, states.k_dim, share, share
