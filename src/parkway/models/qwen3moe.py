"""Qwen3 with experts (30B-A3B and its like)."""

from parkway.models.mixture import Mixture


class Qwen3Moe(Mixture):
    has_head_norms = True
