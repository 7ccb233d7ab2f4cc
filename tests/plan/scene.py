"""One planner in a single scene: its steps land at once, and its copies too unless a test says otherwise."""

from typing import Any

from parkway.plan.copies import Copy
from parkway.plan.limits import Limits, Pace
from parkway.plan.planner import Planner
from parkway.plan.step import StepPlan
from parkway.request import Notice, Request, SamplingParams


def limits(**changes: Any) -> Limits:
    base = {"slots": 4, "pages": 4, "n_ctx": 256, "batch_tokens": 600, "logit_rows": 10, "host_pages": 20}
    return Limits(**(base | {"prefix_cache": False} | changes))


def request(number: int, tokens: int, priority: int = 0, **sampling: Any) -> Request:
    """Its tokens are its own, so that nothing is shared."""
    prompt = [1000 * number + at for at in range(tokens)]
    return Request(id=number, prompt=prompt, sampling=SamplingParams(**sampling), seed=0, priority=priority)


class Scene:
    """A planner whose steps land at once, and whose copies do if `lands`. `told` collects notices and their steps."""

    def __init__(self, limits: Limits, *requests: Request, seconds: float = 1.0, **pace: Any) -> None:
        self.planner = Planner(limits)
        self.lands = True
        self.steps = 0
        self.seconds = seconds
        self.pace: dict[str, Any] = {"look_ahead": 8} | pace
        self.open: list[Copy] = []
        self.copies: list[Copy] = []
        self.told: list[tuple[int, int, Notice]] = []
        self.tokens: dict[int, int] = {}
        for each in requests:
            self.planner.arrive(each)

    def step(self) -> StepPlan:
        planner = self.planner
        plan = planner.plan(Pace(now=self.steps * self.seconds, **self.pace))
        self.steps += 1
        self.hear()
        self.open += plan.copies
        self.copies += plan.copies
        for chunk in plan.chunks:
            planner.sampled(chunk, 7 if chunk.samples else None)
            self.tokens[chunk.request.id] = self.tokens.get(chunk.request.id, 0) + chunk.samples
            self.hear()
        if self.lands:
            self.land()
        return plan

    def land(self) -> None:
        for copy in self.open:
            self.planner.landed(copy.id, (self.steps - 1) * self.seconds)
            self.hear()
        self.open = []

    def hear(self) -> None:
        self.told += [(self.steps, number, notice) for number, notice in self.planner.take_notices()]

    def until_parked(self, most: int = 1) -> StepPlan:
        """The first plan after which so many are out."""
        for _ in range(2000):
            plan = self.step()
            if len(self.out) == most:
                return plan
        raise AssertionError("nobody is parked")

    def drain(self, most: int = 5000) -> None:
        for _ in range(most):
            if self.planner.idle:
                return
            self.step()
        raise AssertionError("somebody does not get on")

    @property
    def out(self) -> list[int]:
        """Who is out, by their requests' ids."""
        states = ("preempting", "preempted", "restoring")
        return [
            view.request_id for view in self.planner.slots() if view.request_id is not None and view.state in states
        ]

    def of(self, number: int) -> list[str]:
        return [notice.state for _, who, notice in self.told if who == number]
