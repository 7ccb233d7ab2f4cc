"""Dialects whose answers are a thought, perhaps, and text with calls after markers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from parkway.errors import BadRequest
from parkway.text.answer_parser import AnswerParser
from parkway.text.call_grammar import Around, Thought, Written, answer_grammar, calls_rules, held_rules, json_arguments
from parkway.text.parts import Parser, Tool, Tools
from parkway.text.prose import Markers, attempt, prose
from parkway.text.reader import Ended, Reader, Steps
from parkway.text.reasoning import THINK, Thoughts, thought, within_thought

ReadCall = Callable[[Reader, Tools], Steps[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedDialect:
    """`read`: who reads calls after which marker; after "", those that an answer may begin with. `around`, `written`:
    how calls are written where one must be. `inner`: further markers within calls."""

    name: str
    read: Mapping[str, ReadCall]
    around: Around
    written: Written = json_arguments
    thoughts: Thoughts = (THINK,)
    inner: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        return (*filter(None, self.read), *self.inner, *self.thought_marks)

    @property
    def thought_marks(self) -> tuple[str, ...]:
        return tuple(marker for pair in self.thoughts for marker in pair)

    def parser(self, *, tools: tuple[Tool, ...], thinking: bool) -> Parser:
        return AnswerParser(lambda reader: self._answer(reader, {tool.name: tool for tool in tools}, thinking))

    def within_thought(self, prompt: str) -> bool:
        return within_thought(prompt, self.thoughts)

    def written_call(self, name: str, arguments: str) -> str:
        return self.around.text(name, arguments)

    def calls(self, tools: tuple[Tool, ...], *, parallel: bool, thinking: bool, special: Mapping[str, int]) -> str:
        rules = calls_rules(self.around, tools, self.written, parallel=parallel, special=special)
        return answer_grammar(rules, self._thought, thinking=thinking, special=special)

    def held(
        self, tools: tuple[Tool, ...], *, parallel: bool, thinking: bool, special: Mapping[str, int]
    ) -> str | None:
        if "" in self.read:
            return None
        begin = self.around.begin or self.around.before
        marker = next(each for each in self.read if begin.startswith(each))
        unsaid = [each for each in (*self.read, self.thoughts[0][0]) if each != marker]
        rules = held_rules(
            self.around, tools, self.written, marker=marker, unsaid=unsaid, parallel=parallel, special=special
        )
        return answer_grammar(rules, self._thought, thinking=thinking, special=special)

    def content(
        self, grammar: str, tools: tuple[Tool, ...], *, parallel: bool, thinking: bool, special: Mapping[str, int]
    ) -> str:
        if tools and "" in self.read:  # after the first brace a grammar must know which of the two it is
            message = f"calls of the dialect {self.name} are JSON, as the content must be: send tool_choice none"
            raise BadRequest("tools", message)
        rules = calls_rules(self.around, tools, self.written, parallel=parallel, special=special) if tools else ""
        return answer_grammar(rules, self._thought, thinking=thinking, special=special, content=grammar)

    @property
    def _thought(self) -> Thought | None:
        return Thought(*self.thoughts[0]) if self.thoughts else None

    def _answer(self, reader: Reader, tools: Tools, thinking: bool) -> Steps[None]:
        yield from thought(reader, self.thoughts, thinking=thinking)
        if tools and "" in self.read:
            yield from _bare(reader, self.read[""](reader, tools))
        markers = Markers(*filter(None, self.read)) if tools else Markers()
        while marker := (yield from prose(reader, "content", markers)):
            yield from attempt(reader, self.read[marker](reader, tools))


def _bare(reader: Reader, call: Steps[None]) -> Steps[None]:
    """A call that the answer begins with, after no marker but its first bracket."""
    try:
        begins = (yield from reader.next()) in "{["
    except Ended:
        begins = False
    if begins:
        reader.retry = reader.at + 1
        yield from attempt(reader, call)
    reader.at = 0
