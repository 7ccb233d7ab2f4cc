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

from .shadow import Shadow
from .shadow_chat import Chat


@st.composite
def drawn_limits(draw: st.DrawFn) -> Limits:
    n_ctx = draw(st.sampled_from([200, 150, 129, 260, 65, 2]))
    slots = draw(st.sampled_from([4, 3, 2, 5, 1]))
    batch_tokens = slots + draw(st.sampled_from([200, 64, 7, 1, 0]))
    chunk_tokens = draw(st.sampled_from([None, 64, 7, 1]))
    rows = min(batch_tokens - slots + 1, chunk_tokens or batch_tokens)
    every = [tokens for tokens in (70, 25, 1) if tokens * rows >= PAGE_TOKENS]  # or nobody would get on for long
    return Limits(
        slots=slots,
        pages=-(-n_ctx // PAGE_TOKENS) + draw(st.sampled_from([0, 1, 2, 5])),
        n_ctx=n_ctx,
        batch_tokens=batch_tokens,
        logit_rows=slots + draw(st.sampled_from([300, 5, 1, 0])),
        chunk_tokens=chunk_tokens,
        give_back_every=draw(st.sampled_from([0, 0, 0, *every])),
        ahead=draw(st.sampled_from([0, 1, 2])),
        prefix_cache=draw(st.sampled_from([True, True, True, False])),
    )


@st.composite
def crowded_limits(draw: st.DrawFn) -> Limits:
    """Where rare moments are frequent: a pool that is hardly more than one chat's, and steps in flight."""
    n_ctx = draw(st.sampled_from([200, 150, 129]))
    slots = draw(st.sampled_from([3, 4]))
    return Limits(
        slots=slots,
        pages=-(-n_ctx // PAGE_TOKENS) + draw(st.sampled_from([0, 1])),
        n_ctx=n_ctx,
        batch_tokens=slots + draw(st.sampled_from([64, 200, 20])),
        logit_rows=slots + draw(st.sampled_from([300, 5])),
        chunk_tokens=draw(st.sampled_from([20, 64, None])),
        give_back_every=draw(st.sampled_from([0, 0, 5])),
        ahead=draw(st.sampled_from([1, 2])),
    )


def page_of(kind: int) -> list[int]:
    """The same tokens wherever it stands, so that only what is before it tells where that is."""
    return [(kind + 7 * offset) % 97 for offset in range(PAGE_TOKENS)]


@st.composite
def drawn_prompt(draw: st.DrawFn) -> list[int]:
    """Some whole pages of few kinds, so that prompts share beginnings, and a rest, often none."""
    kinds = draw(st.sampled_from([[], [], [0], [0, 0], [0, 1], [0, 0, 0], [0, 1, 0], [1], [1, 1], [0, 0, 1, 0]]))
    first, rest = draw(st.sampled_from([0, 0, 5, 50])), draw(st.sampled_from([20, 0, 1, 2, 36, 63]))
    tokens = [token_id for kind in kinds for token_id in page_of(kind)]
    return tokens + page_of(first)[:rest] or [first]


@st.composite
def drawn_request(draw: st.DrawFn) -> Request:
    """A request without its number; the machine cuts its prompt to what fits."""
    sampling = SamplingParams(
        max_tokens=draw(st.sampled_from([None, None, None, 90, 30, 5, 1, 0])),
        ignore_eos=draw(st.booleans()),
        prompt_logprobs=draw(st.sampled_from([None, None, 0])),
        cache_prompt=draw(st.sampled_from([True, True, True, False])),
    )
    stop_ids = frozenset(draw(st.sampled_from([[], [5], [17, 60], range(0, 97, 9)])))
    return Request(id=0, prompt=draw(drawn_prompt()), sampling=sampling, seed=0, stop_ids=stop_ids)


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

    @precondition(lambda self: self.shadow.finished)
    @rule(choice=st.data(), request=drawn_request())
    def ask_on(self, choice: st.DataObject, request: Request) -> None:
        """Behind an answer, with what was sampled behind its end before that was known."""
        chat = choice.draw(st.sampled_from(self.shadow.finished))
        self.arrive([msgspec.structs.replace(request, prompt=chat.tokens + request.prompt[-20:])])

    @precondition(lambda self: self.shadow.open)
    @rule(steps=st.sampled_from([70, 20, 3, 1]), late=st.integers(0, 2))
    def step(self, steps: int, late: int) -> None:
        for _ in range(steps):
            self.land(late if self.shadow.plan().chunks else 0)

    @precondition(lambda self: self.shadow.running)
    @rule(requests=st.lists(drawn_request(), min_size=1, max_size=2), before=st.sampled_from([0, 4, 12]))
    def arrive_at_the_end_of_a_page(self, requests: list[Request], before: int) -> None:
        """So many tokens before a chat needs a page more, which may be one of theirs."""
        for _ in range(PAGE_TOKENS):
            if any(chat.decodes and (chat.length + before) % PAGE_TOKENS == 0 for chat in self.shadow.running):
                break
            self.step(1, self.shadow.limits.ahead)
        self.arrive(requests)
        self.step(1, self.shadow.limits.ahead)

    @precondition(lambda self: len(self.shadow.open) < 3 and self.shadow.limits.n_ctx > 2 * PAGE_TOKENS)
    @rule(first=st.integers(0, 96), before=st.integers(1, 4))
    def come_again_in_flight(self, first: int, before: int) -> None:
        """A chat gives back in the middle of its prompt, and starts over when the leader is cancelled at once."""
        shadow = self.shadow
        for chat in shadow.open:
            shadow.cancel(chat)
        rest = min(PAGE_TOKENS * (shadow.limits.pages - 1), shadow.limits.n_ctx) - 1
        prompts = page_of(first)[:-before], [first] * rest
        sampling = SamplingParams(ignore_eos=True)
        self.arrive([Request(id=0, prompt=prompt, sampling=sampling, seed=0) for prompt in prompts])
        for _ in range(8):
            self.step(1, shadow.limits.ahead)
            if shadow.gave_back_in_flight:
                shadow.cancel(shadow.running[0])

    @precondition(lambda self: self.shadow.open)
    @rule(choice=st.data(), late=st.integers(0, 2))
    def cancel_in_flight(self, choice: st.DataObject, late: int) -> None:
        self.shadow.plan()
        self.shadow.cancel(choice.draw(st.sampled_from(self.shadow.open)))
        self.land(late)

    @precondition(lambda self: self.shadow.running)
    @rule()
    def ask_again_in_flight(self) -> None:
        self.land(self.shadow.limits.ahead if self.shadow.plan().chunks else 0)
        if self.shadow.running:
            chat = self.shadow.running[-1]
            self.shadow.cancel(chat)
            self.shadow.arrive(self.shadow.cancelled.pop().request)
        self.step(2, self.shadow.limits.ahead)

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


class CrowdedMachine(PlannerMachine):
    """The same with other limits."""

    @initialize(limits=crowded_limits(), crowd=st.lists(drawn_request(), min_size=2, max_size=8))
    def begin(self, limits: Limits, crowd: list[Request]) -> None:
        super().begin(limits, crowd)


PlannerMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
CrowdedMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestPlanner = PlannerMachine.TestCase
TestCrowd = CrowdedMachine.TestCase
