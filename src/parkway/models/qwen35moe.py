"""Qwen3.5 and Qwen3.6 with experts, text."""

from parkway.models.hybrid_mixture import HybridMixture


class Qwen35Moe(HybridMixture):
    tiled = True
