"""Parkway: an LLM server where a chat is parked, never failed, and its answer never depends on the traffic."""

from typing import TYPE_CHECKING, Any

from parkway.fingerprint import VERSION as __version__
from parkway.request import SamplingParams

if TYPE_CHECKING:
    from parkway.llm import LLM
    from parkway.text.grammar import grammar_of

__all__ = ["LLM", "SamplingParams", "__version__", "grammar_of"]


def __getattr__(name: str) -> Any:
    """The library door is imported when it is used: a process that only serves, or only computes, starts without it."""
    if name == "LLM":
        from parkway.llm import LLM

        return LLM
    if name == "grammar_of":
        from parkway.text.grammar import grammar_of

        return grammar_of
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
