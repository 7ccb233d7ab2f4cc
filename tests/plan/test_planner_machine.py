"""The planner against a shadow pool and a toy model, with everything drawn that can be drawn.

The toy model's next token is a function of the rows that it finds in the shadow pool through the chunk's pages, so KV
that was lost, shared or overwritten shows as another answer. test_planted_bugs.py shows that the machine can fail.
"""

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from parkway.plan.planner import Limits
from parkway.plan.step import PAGE_TOKENS
from parkway.request import Request, SamplingParams

from .shadow import Chat, Shadow


@st.composite
def drawn_limits(draw: st.DrawFn) -> Limits:
    n_ctx = draw(st.sampled_from([200, 150, 129, 260, 65, 2]))
    slots = draw(st.sampled_from([4, 3, 2, 5, 1]))
    return Limits(
        slots=slots,
        pages=-(-n_ctx // PAGE_TOKENS) + draw(st.sampled_from([0, 1, 2, 5])),
        n_ctx=n_ctx,
        batch_tokens=slots + draw(st.sampled_from([200, 64, 7, 1, 0])),
        logit_rows=slots + draw(st.sampled_from([300, 5, 1, 0])),
        chunk_tokens=draw(st.sampled_from([None, 64, 7, 1])),
        give_back_every=draw(st.sampled_from([0, 0, 0, 70, 25, 1])),
        ahead=draw(st.sampled_from([0, 1, 2])),
    )


@st.composite
def drawn_request(draw: st.DrawFn) -> Request:
    """A request without its number; the machine cuts its prompt to what fits."""
    length = draw(st.sampled_from([20, 1, 2, 40, 63, 64, 65, 100, 127, 128, 150, 200, 259]))
    first = draw(st.integers(0, 96))
    sampling = SamplingParams(
        max_tokens=draw(st.sampled_from([None, None, None, 90, 30, 1, 0])),
        ignore_eos=draw(st.booleans()),
        prompt_logprobs=draw(st.sampled_from([None, None, 0, 3])),
    )
    stop_ids = frozenset(draw(st.sampled_from([[], [5], [17, 60]])))
    prompt = [(first + 7 * position) % 97 for position in range(length)]
    return Request(id=0, prompt=prompt, sampling=sampling, seed=0, stop_ids=stop_ids)


class PlannerMachine(RuleBasedStateMachine):
    @initialize(limits=drawn_limits(), crowd=st.lists(drawn_request(), min_size=2, max_size=8))
    def begin(self, limits: Limits, crowd: list[Request]) -> None:
        self.shadow = Shadow(limits)
        self.ids = 0
        self.arrive(crowd)

    @rule(requests=st.lists(drawn_request(), min_size=1, max_size=4))
    def arrive(self, requests: list[Request]) -> None:
        for request in requests:
            prompt = request.prompt[: self.shadow.limits.n_ctx - 1]
            self.shadow.arrive(msgspec.structs.replace(request, id=self.ids, prompt=prompt))
            self.ids += 1

    @precondition(lambda self: self.shadow.open)
    @rule(choice=st.data())
    def cancel(self, choice: st.DataObject) -> None:
        self.shadow.cancel(choice.draw(st.sampled_from(self.shadow.open)))

    @precondition(lambda self: self.shadow.preempted)
    @rule()
    def cancel_preempted(self) -> None:
        self.shadow.cancel(self.shadow.preempted[0])

    @precondition(lambda self: self.shadow.cancelled)
    @rule(choice=st.data())
    def ask_again(self, choice: st.DataObject) -> None:
        """With the id, and even the request, of a chat that was cancelled and may still be in flight."""
        cancelled = self.shadow.cancelled
        self.shadow.arrive(cancelled.pop(choice.draw(st.integers(0, len(cancelled) - 1))).request)

    @precondition(lambda self: self.shadow.open)
    @rule(steps=st.sampled_from([70, 20, 3, 1]), late=st.integers(0, 2))
    def step(self, steps: int, late: int) -> None:
        for _ in range(steps):
            self.land(late if self.shadow.plan().chunks else 0)

    @precondition(lambda self: self.shadow.open)
    @rule(choice=st.data(), late=st.integers(0, 2))
    def cancel_in_flight(self, choice: st.DataObject, late: int) -> None:
        self.shadow.plan()
        self.shadow.cancel(choice.draw(st.sampled_from(self.shadow.open)))
        self.land(late)

    def land(self, late: int) -> None:
        """Reports all but the newest steps, of which the next plan lets at most `ahead` be late."""
        while len(self.shadow.in_flight) > min(late, self.shadow.limits.ahead):
            self.shadow.land()

    @precondition(lambda self: self.shadow.open)
    @rule()
    def drain(self) -> None:
        """The leader computes a row a step at least, and starts over only after a token that is new.

        Before it starts over, and at its end, it waits for what is in flight.
        """
        steps_left = sum(self.most_steps(chat) for chat in self.shadow.open)
        while self.shadow.open:
            self.step(1, self.shadow.limits.ahead)
            steps_left -= 1
            assert steps_left >= 0, "somebody does not get on"
        self.land(0)
        assert self.shadow.planner.idle

    def most_steps(self, chat: Chat) -> int:
        limits = self.shadow.limits
        answer_tokens = len(chat.tokens) - len(chat.request.prompt)
        starts = 1 + (answer_tokens // limits.give_back_every if limits.give_back_every else 0)
        return (len(chat.tokens) + limits.ahead) * starts


PlannerMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=20, deadline=None)
TestPlanner = PlannerMachine.TestCase
