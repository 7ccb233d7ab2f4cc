"""Llama 2/3, Mistral, SmolLM2 and their like."""

from parkway.models.dense import Dense


class Llama(Dense):
    rotary_pairs = "neighbours"
