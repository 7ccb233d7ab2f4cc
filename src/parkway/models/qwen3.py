"""Qwen3, the dense ones: every head of q and k is normed before it is turned."""

from parkway.models.dense import Dense


class Qwen3(Dense):
    has_head_norms = True
