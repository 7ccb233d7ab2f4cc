"""What the machine of test_planner_machine.py draws: limits, knobs, the pace of the clock, requests."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from parkway.plan.limits import FOREVER, Knobs, Limits, Pace
from parkway.plan.step import PAGE_TOKENS
from parkway.request import Pooling, Request, SamplingParams


@st.composite
def drawn_knobs(draw: st.DrawFn, rows: int) -> Knobs:
    """`rows`: how many of a chat are computed in a step."""
    every = [tokens for tokens in (70, 25, 1) if tokens * rows >= PAGE_TOKENS]  # or nobody would get on for long
    return Knobs(
        park_every=draw(st.sampled_from([0, 0, 0, *every])),
        forget=draw(st.sampled_from([False, False, True])),
        exempt_first=draw(st.sampled_from([False, False, True])),
        victim=draw(st.sampled_from(["cheapest", "cheapest", "smallest", "largest", "youngest", "oldest"])),
        look_ahead=draw(st.sampled_from([True, True, True, False])),
    )


@st.composite
def drawn_limits(draw: st.DrawFn) -> Limits:
    n_ctx = draw(st.sampled_from([200, 150, 129, 260, 65, 2]))
    slots = draw(st.sampled_from([4, 3, 2, 5, 1]))
    batch_tokens = slots + draw(st.sampled_from([200, 64, 7, 1, 0]))
    chunk_tokens = draw(st.sampled_from([None, 64, 7, 1]))
    return Limits(
        slots=slots,
        pages=-(-n_ctx // PAGE_TOKENS) + draw(st.sampled_from([0, 1, 2, 5])),
        n_ctx=n_ctx,
        batch_tokens=batch_tokens,
        logit_rows=slots + draw(st.sampled_from([300, 5, 1, 0])),
        chunk_tokens=chunk_tokens,
        ahead=draw(st.sampled_from([0, 1, 2])),
        prefix_cache=draw(st.sampled_from([True, True, True, False])),
        checkpoints=draw(st.sampled_from([None, None, 8, 2, 1, 0])),
        interval=draw(st.sampled_from([64, 128])),
        host_pages=draw(st.sampled_from([40, 3, 8, 0])),
        parks=draw(st.sampled_from([True, True, True, True, False])),
        resume=draw(st.sampled_from(["head", "head", "head", "pass"])),
        quantum=draw(st.sampled_from([FOREVER, 2.0, 10.0])),
        knobs=draw(drawn_knobs(min(batch_tokens - slots + 1, chunk_tokens or batch_tokens))),
    )


@st.composite
def crowded_limits(draw: st.DrawFn) -> Limits:
    """Where rare moments are frequent: a pool that is hardly more than one chat's, and steps in flight."""
    n_ctx = draw(st.sampled_from([200, 150, 129]))
    slots = draw(st.sampled_from([3, 4]))
    return Limits(
        slots=slots,
        pages=-(-n_ctx // PAGE_TOKENS) + draw(st.sampled_from([0, 1, 2])),
        n_ctx=n_ctx,
        batch_tokens=slots + draw(st.sampled_from([64, 200, 20])),
        logit_rows=slots + draw(st.sampled_from([300, 5])),
        chunk_tokens=draw(st.sampled_from([20, 64, None, 3])),
        ahead=draw(st.sampled_from([1, 2])),
        host_pages=draw(st.sampled_from([40, 40, 4, 0])),
        quantum=draw(st.sampled_from([5.0, FOREVER])),
        knobs=Knobs(
            park_every=draw(st.sampled_from([0, 0, 5])),
            forget=draw(st.sampled_from([False, True])),
            exempt_first=draw(st.sampled_from([False, False, True])),
            look_ahead=draw(st.sampled_from([True, True, True, False])),
        ),
    )


@st.composite
def limits_with_states(draw: st.DrawFn) -> Limits:
    """Crowded ones. With few rows a step whoever has come in waits long before it begins at its checkpoint."""
    limits = draw(crowded_limits())
    return replace(
        limits,
        checkpoints=draw(st.sampled_from([2, 1, 8])),
        interval=draw(st.sampled_from([64, 128, 512])),
        batch_tokens=limits.slots + draw(st.sampled_from([1, 2, 8, 64])),
    )


@st.composite
def limits_with_branches(draw: st.DrawFn) -> Limits:
    """With states, and room for what others have left."""
    limits = draw(limits_with_states())
    n_ctx = draw(st.sampled_from([260, 200]))
    return replace(
        limits,
        n_ctx=n_ctx,
        pages=-(-n_ctx // PAGE_TOKENS) + draw(st.sampled_from([6, 1, 12])),
        interval=draw(st.sampled_from([512, 128])),
        shifts=draw(st.sampled_from([False, False, True])),
    )


@st.composite
def limits_with_shifts(draw: st.DrawFn) -> Limits:
    """Crowded ones, in which a chat outgrows its context."""
    limits = draw(crowded_limits())
    n_ctx = draw(st.sampled_from([129, 200, 65, 256]))
    return replace(
        limits,
        n_ctx=n_ctx,
        pages=-(-n_ctx // PAGE_TOKENS) + draw(st.sampled_from([2, 0, 1, 5])),
        shifts=True,
        ahead=draw(st.sampled_from([1, 2, 0])),
        prefix_cache=draw(st.sampled_from([True, True, True, False])),
        checkpoints=draw(st.sampled_from([None, None, 2, 8, 0])),
        interval=draw(st.sampled_from([64, 128])),
    )


@st.composite
def long_limits(draw: st.DrawFn) -> Limits:
    """Where chats outgrow the pool again and again and take turns."""
    return Limits(
        slots=5,
        pages=draw(st.sampled_from([6, 5, 12])),
        n_ctx=300,
        batch_tokens=200,
        logit_rows=300,
        ahead=draw(st.sampled_from([0, 1])),
        host_pages=draw(st.sampled_from([40, 40, 0])),
        quantum=draw(st.sampled_from([2.0, 8.0, FOREVER])),
        knobs=Knobs(
            exempt_first=draw(st.sampled_from([False, False, True])),
            victim=draw(st.sampled_from(["cheapest", "smallest", "largest", "youngest", "oldest"])),
        ),
    )


@st.composite
def long_request(draw: st.DrawFn) -> Request:
    sampling = SamplingParams(ignore_eos=True)
    prompt = [draw(st.integers(0, 96))] * draw(st.sampled_from([20, 40, 60]))
    return Request(id=0, prompt=prompt, sampling=sampling, seed=0)


@dataclass(frozen=True)
class Clock:
    """How time passes: so many seconds a step, and what a planner is told of its speed."""

    seconds: float
    look_ahead: int
    page_seconds: float
    token_seconds: float
    switch: float

    def pace(self, steps: int) -> Pace:
        return Pace(self.seconds * steps, self.look_ahead, self.page_seconds, self.token_seconds, self.switch)


@st.composite
def drawn_clock(draw: st.DrawFn) -> Clock:
    page_seconds, token_seconds = draw(st.sampled_from([(0.0, 0.0), (0.0, 0.0), (1.0, 1.0), (1.0, 0.02), (1.0, 0.005)]))
    return Clock(
        seconds=draw(st.sampled_from([0.25, 1.0, 0.01])),
        look_ahead=draw(st.sampled_from([8, 0, 1, 16])),
        page_seconds=page_seconds,
        token_seconds=token_seconds,
        switch=draw(st.sampled_from([0.0, 0.0, 1.0])),
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
    poolings: list[Pooling | None] = [*[None] * 8, "last", "mean"]
    embed = draw(st.sampled_from(poolings))
    sampling = SamplingParams(
        max_tokens=0 if embed else draw(st.sampled_from([None, None, None, 90, 30, 5, 1, 0])),
        ignore_eos=draw(st.booleans()),
        prompt_logprobs=None if embed else draw(st.sampled_from([None, None, 0])),
        embed=embed,
        cache_prompt=draw(st.sampled_from([True, True, True, False])),
        presence_penalty=draw(st.sampled_from([0.0, 0.0, 0.0, 0.5])),
    )
    return Request(
        id=0,
        prompt=draw(drawn_prompt()),
        sampling=sampling,
        seed=0,
        stop_ids=frozenset(draw(st.sampled_from([[], [5], [17, 60], range(0, 97, 9)]))),
        priority=draw(st.sampled_from([0] * 11 + [1])),
        client=draw(st.sampled_from(["", "", "a", "b"])),
    )
