"""What the engine says about itself: once when it is up, with every step, and from time to time."""

import msgspec

from parkway.request import Output


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine says about itself once it is up. `n_ctx`: most tokens of one chat; `shifts`: a longer one goes on
    without its oldest. `state_bytes`: of what slots keep beside pages; `checkpoint_bytes`: of copies of that.
    `host_bytes`: room for parked chats; 0 where they are computed again. `exact`: answers don't depend on the traffic.
    `bit_check`: what the check of that found; None on the CPU, whose kernels have one order of sums."""

    model: str
    n_ctx: int
    slots: int
    vocab_size: int
    fingerprint: str
    shifts: bool = False
    exact: bool = True
    bit_check: str | None = None
    weight_bytes: int
    pool_bytes: int
    state_bytes: int = 0
    checkpoint_bytes: int = 0
    host_bytes: int = 0
    embedding_width: int = 0


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """Counters and gauges of the engine, pushed with every step so that nobody has to ask a busy engine.

    `parked`: chats that are out, until they can be computed again; `parked_bytes`: of their pages on the host, for
    which `host_bytes` are held."""

    running: int = 0
    waiting: int = 0
    pages_used: int = 0
    pages_total: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    cached_tokens: int = 0
    finished: dict[str, int] = {}
    parked: int = 0
    parks: int = 0
    resumes: int = 0
    recomputes: int = 0
    parked_bytes: int = 0
    host_bytes: int = 0


BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
"""Upper bounds of a histogram's buckets, in seconds; a last one has no bound."""


class Histogram(msgspec.Struct, frozen=True, array_like=True):
    """How many durations fell into each bucket (not cumulated), and their sum in seconds."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0


class SlotView(msgspec.Struct, frozen=True, array_like=True):
    """A slot as seen from outside. `request_id` is None where nobody has it; `state` is that of plan/slot.py.

    `tokens`: prompt and answer; `computed`: those whose KV is there; `pages`: on the device, shared ones counted;
    `cached`: tokens of the prompt that were found, not computed.
    """

    id: int
    request_id: int | None = None
    state: str = "idle"
    prompt_tokens: int = 0
    tokens: int = 0
    computed: int = 0
    pages: int = 0
    parks: int = 0
    recomputes: int = 0
    cached: int = 0


class View(msgspec.Struct, frozen=True, array_like=True):
    """What /slots and the histograms show: too much for every step, so it comes with some reports only.

    `park`: from the decision until a park's copy has landed; `restore` likewise; `wait`: from `preempted` to `resumed`;
    `gap`: between two tokens of a chat that was not out between them. `at`: seconds of the engine's clock.
    """

    slots: list[SlotView] = []
    park: Histogram = Histogram()
    restore: Histogram = Histogram()
    wait: Histogram = Histogram()
    gap: Histogram = Histogram()
    at: float = 0.0


class Report(msgspec.Struct, frozen=True, array_like=True):
    """The one message from the engine: the outputs of a step, in order, and the snapshot after it.

    `view` is None where the one before still stands.
    """

    outputs: list[Output]
    snapshot: Snapshot
    view: View | None = None
