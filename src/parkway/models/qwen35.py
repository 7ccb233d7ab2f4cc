"""Qwen3.5, text: gated delta nets, and gated attention in every fourth layer."""

from parkway.models.hybrid import Hybrid


class Qwen35(Hybrid):
    tiled = True
