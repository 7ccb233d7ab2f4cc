"""One choice of a request while it is computed: from the door's outputs to text and parts. Knows no door, no JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from parkway.api.logprobs import Row
from parkway.api.reading import Reading
from parkway.request import Notice, Output, Preempt, Request, TokenLogprob
from parkway.text import TextStream, Tokenizer
from parkway.text.parts import Part


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and the text that `echo` shows for them; `hidden` ids in front (BOS) are not in that text."""

    ids: list[int]
    text: str
    hidden: int = 0


class Progress(NamedTuple):
    """How far a prompt has got, in tokens: all, found, found or computed; and how long that took."""

    total: int
    cached: int
    done: int
    ms: float


class Delta(NamedTuple):
    """What came for one choice: new text, rows of log-probabilities if asked for, the reason if it ended.

    Or a notice and nothing else: text that is held back stays so. The reason is stop, length, or tool_calls where an
    answer with calls ended by itself. `parsed`: what a parser made of the text; None where there is none. `token_ids`
    have come, with or without text. `progress`: of the prompt, and nothing else.
    """

    choice: int
    text: str
    rows: list[Row]
    finish_reason: str | None
    notice: Notice | None = None
    parsed: list[Part] | None = None
    token_ids: Sequence[int] = ()
    progress: Progress | None = None

    @property
    def parts(self) -> list[Part]:
        """The text in parts; all of it is content where nothing has parsed it."""
        if self.parsed is not None:
            return self.parsed
        return [Part("content", self.text)] if self.text else []


class Choice:
    """One answer being received. `echo` puts the prompt's text and rows before it; `reading` takes it apart.

    `hidden` are the tokens without text, all special ones unless told. `embedding`: what is asked for in
    place of text. `preempt` is counted by notices until the engine tells it; it doesn't where a stop string ends the
    answer.
    """

    def __init__(
        self,
        index: int,
        request: Request,
        tokenizer: Tokenizer,
        *,
        echo: Prompt | None = None,
        reading: Reading | None = None,
        hidden: frozenset[int] | None = None,
    ) -> None:
        self.index = index
        self.request = request
        self.answer_tokens = 0
        self.reasoning_tokens = 0
        self.cached_tokens = 0
        self.preempt = Preempt()
        self.embedding = b""
        self.finish_reason: str | None = None
        self.first_token_at = self.last_token_at = 0.0
        self._special_ids = tokenizer.special_ids
        self._text = TextStream(tokenizer, request.sampling.stop, hidden)
        self._reading = reading
        self._echo = echo
        self._scored: dict[int, TokenLogprob] = {}

    @property
    def stop_string(self) -> str | None:
        """The one that ended the answer, if one did."""
        return self._text.stop_string

    def take(self, output: Output) -> Delta:
        for scored in output.prompt_logprobs:
            self._scored[scored.position] = scored
        self.cached_tokens += output.cached_tokens
        if self._reading is not None:
            return self._take_read(output, self._reading)
        pieces = self._take_tokens(output.token_ids)
        text = "".join(pieces)
        rows = self._rows(output, len(pieces)) if output.logprobs else []
        if output.finish_reason:
            text += self._finish(output)
        self.finish_reason = output.finish_reason if self._text.stop_string is None else "stop"
        if self._echo is not None and (output.token_ids or self.finish_reason):
            text, rows = self._echo.text + text, [*self._prompt_rows(self._echo), *rows]
            self._echo = None
        return Delta(self.index, text, rows, self.finish_reason, token_ids=output.token_ids[: len(pieces)])

    def take_notice(self, notice: Notice) -> Delta:
        self.preempt = self.preempt.after(notice)
        return Delta(self.index, "", [], None, notice)

    def _take_tokens(self, token_ids: list[int]) -> list[str]:
        text = self._text
        pieces = []
        for token_id in token_ids:
            pieces.append(text.push(token_id))
            if text.stop_string is not None:
                break
        self.answer_tokens += len(pieces)
        return pieces

    def _take_read(self, output: Output, reading: Reading) -> Delta:
        pieces: list[str] = []
        parts: list[Part] = []
        for token_id in output.token_ids:
            self.answer_tokens += 1
            self.reasoning_tokens += reading.thinking
            pieces.append(self._text.push(token_id))
            parts += reading.push(pieces[-1])
            if self._text.stopped or reading.ended:
                break
        rows = self._rows(output, len(pieces))
        if output.finish_reason:
            pieces.append(self._finish(output))
            parts += reading.push(pieces[-1])
        if output.finish_reason or self._text.stopped:
            parts += reading.finish()
        self.finish_reason = reason = "stop" if self._text.stopped or reading.ended else output.finish_reason
        told = "tool_calls" if reason == "stop" and reading.called else reason
        return Delta(self.index, "".join(pieces), rows, told, None, parts)

    def _finish(self, output: Output) -> str:
        """The text that was held back, when the engine has told the end."""
        self.preempt, self.embedding = output.preempt, output.embedding
        return self._text.finish()

    def _rows(self, output: Output, tokens: int) -> list[Row]:
        return [self._row(scored) for scored in output.logprobs[:tokens]]

    def _row(self, scored: TokenLogprob) -> Row:
        return Row(scored.token_id, scored, scored.token_id not in self._special_ids)

    def _prompt_rows(self, prompt: Prompt) -> Iterator[Row]:
        if self.request.sampling.prompt_logprobs is None:
            return
        for position, token_id in enumerate(prompt.ids):
            yield Row(token_id, self._scored.get(position), position >= prompt.hidden)
