"""OpenAI's JSON for a completion's choices: text, and log-probabilities with offsets. Knows no engine."""

from collections.abc import Sequence
from typing import Any

from parkway.api.answer import Answer
from parkway.api.choice import Delta
from parkway.api.forms import OpenAIForm, Style
from parkway.api.logprobs import CompletionRows, Row
from parkway.text.parts import Part


class CompletionForm(OpenAIForm):
    prefix = "cmpl"
    object = chunk_object = "text_completion"

    def __init__(self, style: Style, answer: Answer) -> None:
        super().__init__(style, answer)
        self._rows = [CompletionRows(style.tokenizer) for _ in answer.choices]

    def opening(self) -> bytes:
        return b""

    def choice(self, deltas: Sequence[Delta], logprobs: Any) -> dict[str, Any]:
        last = deltas[-1]
        return _choice(last.choice, "".join(delta.text for delta in deltas), logprobs, last.finish_reason)

    def chunk_choice(self, index: int, part: Part | None, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        return _choice(index, "" if part is None else part.text, logprobs, finish_reason)

    def logprobs(self, choice: int, rows: list[Row]) -> dict[str, Any]:
        return self._rows[choice].take(rows)


def _choice(index: int, text: str, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
