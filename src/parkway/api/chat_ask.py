"""A chat that is asked for, whichever API was spoken. Knows neither JSON bodies nor how it is computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from parkway.request import SamplingParams
from parkway.text.parts import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAsk:
    """One conversation and how to go on with it.

    `messages`: as chat templates want them (role, content, tool_calls with arguments as objects, tool_call_id, name).
    `tool_choice`: none, auto, required, or `tool:NAME`, which calls that one. `grammar`: of the answer's content,
    llguidance's serialised form. `stop_ids`: further tokens that end the answer. `variables`: further ones of the
    template. `continue_final`: the last message is the assistant's and is gone on with. `reasoning`: split: thoughts
    are parts of their own; off: they stay in the content.
    """

    messages: Sequence[dict[str, Any]]
    sampling: SamplingParams
    choices: int = 1
    priority: int = 0
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    parallel_calls: bool = True
    grammar: str | None = None
    stop_ids: tuple[int, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final: bool = False
    reasoning: Literal["split", "off"] = "split"
