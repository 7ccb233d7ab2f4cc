"""What crosses the engine's door: what is asked for and what comes back. Speaks token ids; knows no text.

Everything here is a msgspec struct, so that the same objects pass between threads as they are and between
processes as MessagePack.
"""

from typing import Literal

import msgspec

from parkway.errors import BadRequest, ChatFailed, EngineDied, ParkwayError, PoolFull

Pooling = Literal["last", "mean"]
MAX_LOGPROBS = 20
POOL_FULL = "Context size has been exceeded."
"""The error of a request that was ended because the pool is full and nobody may be parked: llama-server's words."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer is sampled. `stop` is applied by the text layer; the engine never sees a string.

    Order: temperature, then top_k, top_p, min_p on what is left; another where `samplers` names one, or where a sampler
    is asked for that is off by default (runner/chain.py). temperature 0 is greedy: highest logit, ties to the lower id.
    max_tokens None runs to the end of the context, or on and on where contexts are shifted. logprobs: None for none, 0
    for the chosen token's only, n for it and the n most probable (of the unmodified distribution). cache_prompt: False
    computes the whole prompt even if pages of its beginning are still there; the answer is the same. embed: an
    embedding of the prompt is asked for, and no tokens (max_tokens 0): the hidden state of its last token, or the mean
    over all of them.

    Before all that logits are edited, in this order: repeat_penalty r divides a positive logit by r and multiplies
    another, of each token among the last `repeat_last_n` of prompt and answer (-1: all); presence_penalty is taken from
    each token of the answer once, frequency_penalty as often as it is there; logit_bias (token id, number) is added;
    what ends the answer is forbidden for `min_tokens`; `grammar` (llguidance's serialised form) forbids what it does
    not allow next. dry_multiplier is taken from tokens that would go on with a repetition, times dry_base for each
    token by which that is longer than dry_allowed_length; it is looked for among the last `dry_penalty_last_n` tokens
    (-1: all), behind the last of `dry_breakers`, which are runs of tokens.

    `samplers`: the order, by llama-server's names; those that it doesn't name are off. () for the usual one. `mirostat`
    1 or 2 takes the place of all but temperature. `n_keep`, `n_discard`: see plan/shift.py. Raises BadRequest.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    cache_prompt: bool = True
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    grammar: str | None = None
    embed: Pooling | None = None
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_breakers: tuple[tuple[int, ...], ...] = ()
    n_keep: int = 0
    n_discard: int = 0
    samplers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            _check(name, getattr(self, name), low, high)
        if any(not text for text in self.stop):
            raise BadRequest("stop", "stop must not contain an empty string")
        if any(not number < float("inf") for _, number in self.logit_bias):
            raise BadRequest("logit_bias", "logit_bias must be made of numbers; -inf forbids")

    @property
    def needs_history(self) -> bool:
        """Whether a token can be chosen only once all before it are known to the host."""
        penalised = self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
        return penalised or self.dry or self.mirostat > 0 or self.grammar is not None

    @property
    def dry(self) -> bool:
        return self.dry_multiplier > 0 and self.dry_penalty_last_n != 0


_RANGES: tuple[tuple[str, float, float], ...] = (
    *((name, 0, 2**31 - 1) for name in ("max_tokens", "top_k", "min_tokens", "dry_allowed_length", "n_discard")),
    *((name, -1, 2**31 - 1) for name in ("repeat_last_n", "dry_penalty_last_n", "n_keep")),
    *((name, 0, 1) for name in ("top_p", "min_p", "typical_p", "xtc_probability", "xtc_threshold")),
    *((name, 0, 100) for name in ("temperature", "dynatemp_range", "dynatemp_exponent")),
    *((name, 0, 1000) for name in ("mirostat_tau", "mirostat_eta", "dry_multiplier")),
    *((name, 0, MAX_LOGPROBS) for name in ("logprobs", "prompt_logprobs")),
    *((name, -100, 100) for name in ("presence_penalty", "frequency_penalty")),
    ("seed", -(2**63), 2**64 - 1),
    *(("repeat_penalty", 0.01, 100), ("top_n_sigma", -1, 1000), ("mirostat", 0, 2), ("dry_base", 1, 1000)),
)


def _check(name: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:  # NaN fails too
        raise BadRequest(name, f"{name} must be between {low} and {high}, not {value}")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt for one answer, as the engine sees it.

    `id` is unique at its door. `seed` is settled (drawn by whoever made the request if the client gave none).
    `stop_ids` end the answer and are its last token. `prompt_index` and `choice_index` are counters of the random
    generator, so that the prompts and choices of one HTTP request differ. Of chats that wait for room, those of a lower
    `priority` come first. `client`: whose chat it is; slots are shared out evenly among clients.
    """

    id: int
    prompt: list[int]
    sampling: SamplingParams
    seed: int
    stop_ids: frozenset[int] = frozenset()
    prompt_index: int = 0
    choice_index: int = 0
    priority: int = 0
    client: str = ""


class Vocabulary(msgspec.Struct, frozen=True):
    """What the token ids stand for, for grammars: each one's bytes, and which are no text whatever their bytes."""

    pieces: list[bytes]
    special_ids: frozenset[int] = frozenset()


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """Natural log-probability of a token (an fp32 value) at a position of the chat, with the most probable there.

    `position` is the token's own index in prompt + answer. `top` is sorted by falling log-probability, then rising id.
    """

    position: int
    token_id: int
    logprob: float
    top: list[tuple[int, float]]


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """A chat was parked, or has come back: `preempted`, `resumed`, `recomputed` (right behind `resumed`).

    `ahead`: parked chats that come back before this one. `waited_ms`: since `preempted`.
    """

    state: str
    ahead: int = 0
    waited_ms: int = 0


class Preempt(msgspec.Struct, frozen=True, array_like=True):
    """How often a chat was parked, how many of those times it was computed again, and how long it was away in all."""

    parks: int = 0
    recomputes: int = 0
    parked_ms: int = 0

    def after(self, notice: Notice) -> "Preempt":
        """With what one more notice tells."""
        parks, recomputes = self.parks + (notice.state == "preempted"), self.recomputes + (notice.state == "recomputed")
        return Preempt(parks, recomputes, self.parked_ms + (notice.waited_ms if notice.state == "resumed" else 0))


class Output(msgspec.Struct, frozen=True, array_like=True):
    """What one step brought for one request. The last has a finish reason: stop, length, cancelled or error.

    `cached_tokens`: how many tokens of the prompt were not computed because their pages were there; told once, when
    the prompt has been. One with a notice has nothing else. The last tells what parks there were, and has the embedding
    if one was asked for: float32, little-endian, of no particular length. `died`: the error is the engine's end.
    """

    request_id: int
    token_ids: list[int] = []
    logprobs: list[TokenLogprob] = []
    prompt_logprobs: list[TokenLogprob] = []
    finish_reason: str | None = None
    error: str | None = None
    cached_tokens: int = 0
    notice: Notice | None = None
    preempt: Preempt = Preempt()
    embedding: bytes = b""
    died: bool = False

    @property
    def failure(self) -> ParkwayError:
        """What an error is to whoever asked."""
        error = self.error or "the engine gave up the request"
        return (EngineDied if self.died else PoolFull if error == POOL_FULL else ChatFailed)(error)
