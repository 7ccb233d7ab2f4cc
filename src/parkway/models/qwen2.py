"""Qwen2 and Qwen2.5: q, k and v have biases."""

from parkway.models.dense import Dense


class Qwen2(Dense):
    needs_bias = True
