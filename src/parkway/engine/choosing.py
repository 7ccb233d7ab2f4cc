"""What open requests ask about the choice of their tokens, gathered for each step. Knows no runner and no clock."""

from collections.abc import Callable

from parkway.plan.planner import Planner
from parkway.plan.step import Chunk, StepPlan
from parkway.request import Request
from parkway.runner import Sampled
from parkway.runner.constraints import Constraints
from parkway.runner.edits import Editor, Edits, Mask


class Choosing:
    """`constraints`: what grammars allow next. `again`: as a `Runner` has it."""

    def __init__(self, vocab_size: int, again: Callable[[Chunk, Edits], Sampled] | None = None) -> None:
        self.constraints = Constraints(vocab_size, draws_first=again is not None)
        self._again = again
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
                edits = self._edits(editor, chunk, planner, self.constraints.mask(chunk.request.id))
                if edits:
                    made[chunk.slot] = edits
        return made

    def kept(self, chunk: Chunk, sampled: Sampled, planner: Planner) -> Sampled:
        """What came of a chunk, with a token that its grammar allows. One that was drawn before it was known what that
        allows may be forbidden: then another is drawn from what it does. So the chances of each are as they would be
        with the mask from the first: p + (1 - P) p / P, where it allows P of all, is p / P."""
        token_id, constraint = sampled.token_id, self.constraints.drawn_first(chunk.request.id)
        if constraint is None or token_id is None or token_id < 0 or constraint.takes(token_id):
            return sampled
        if constraint.mask is None or not constraint.mask.any():
            return sampled
        edits = self._edits(self._editors[chunk.request.id], chunk, planner, constraint.mask)
        assert self._again, "a runner that does not draw again"
        assert edits, "a mask is an edit"
        made = self._again(chunk, edits)
        return sampled._replace(token_id=made.token_id, logprob=made.logprob)

    @staticmethod
    def _edits(editor: Editor, chunk: Chunk, planner: Planner, mask: Mask | None) -> Edits | None:
        return editor.edits(planner.tokens(chunk.slot), chunk.next_index, mask, shed=chunk.shed)
