"""What open requests ask about the choice of their tokens, gathered for each step. Knows no runner and no clock."""

from parkway.plan.planner import Planner
from parkway.plan.step import StepPlan
from parkway.request import Request
from parkway.runner.constraint import Constraints
from parkway.runner.edits import Editor, Edits


class Choosing:
    """`constraints`: what grammars allow next."""

    def __init__(self, vocab_size: int) -> None:
        self.constraints = Constraints(vocab_size)
        self._vocab_size = vocab_size
        self._editors: dict[int, Editor] = {}
        self._await_tokens: set[int] = set()
        """Requests that get no token before their last one has landed."""

    def open(self, request: Request) -> None:
        if Editor.needed(request):
            self._editors[request.id] = Editor(request, self._vocab_size)
        if request.sampling.needs_history:
            self._await_tokens.add(request.id)
        if request.sampling.grammar is not None:
            self.constraints.open(request)

    def drop(self, request_id: int) -> None:
        """The request has ended."""
        self._await_tokens.discard(request_id)
        self._editors.pop(request_id, None)
        self.constraints.drop(request_id)

    def chosen(self, request_id: int, surprise: float) -> None:
        """How surprising the request's next token was, which has been chosen."""
        editor = self._editors.get(request_id)
        if editor:
            editor.chosen(surprise)

    def all_await(self, requests: int) -> bool:
        """Whether each of so many open requests gets no token before its last one has landed."""
        return len(self._await_tokens) == requests

    def edits(self, plan: StepPlan, planner: Planner) -> dict[int, Edits]:
        """By slot: what changes the logits of the tokens that a step chooses."""
        made = {}
        for chunk in plan.chunks if self._editors else ():
            editor = self._editors.get(chunk.request.id) if chunk.samples else None
            if editor:
                mask = self.constraints.mask(chunk.request.id)
                tokens, shed = planner.tokens(chunk.slot), chunk.shed
                edits = editor.edits(tokens, chunk.next_index, mask, shed=shed)
                if edits:
                    made[chunk.slot] = edits
        return made
