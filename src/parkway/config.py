"""The settings, once: names, defaults, flags and checks. The command line and the environment are read from here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from parkway.errors import BadSetting

Activations = Literal["int8", "f32"]
Isa = Literal["auto", "amx", "avx512", "avx2", "portable"]
DeviceName = Literal["auto", "cpu", "cuda"]
Numerics = Literal["exact", "fast"]
Switch = Literal["on", "off"]
Log = Literal["warnings", "requests", "parks"]
LogFormat = Literal["text", "json"]
Preempt = Literal["copy", "recompute", "off"]
Resume = Literal["head", "pass"]
Notices = Literal["off", "comments", "chunks"]
Reasoning = Literal["auto", "on", "off"]
ReasoningFormat = Literal["auto", "none", "deepseek"]
PoolingName = Literal["auto", "last", "mean"]
Victim = Literal["cheapest", "smallest", "largest", "youngest", "oldest"]


MOST = 2**31 - 1
"""Of every whole number."""
AUTO = "auto"
AUTOMATIC = -2
"""Of --preempt-ram: sized by the pool and the machine."""


def variable_count(environment: Mapping[str, str], name: str) -> int:
    """The whole number of a variable that is not a setting; 0 unless it is set. Raises BadSetting, which names it."""
    text = environment.get(name, "0")
    if not text.isdecimal():
        raise BadSetting(name, f"must be a whole number that is not negative, not {text!r}")
    return int(text)


def _flag(default: Any, *names: str, about: str, off: str = "", bare: bool = False) -> Any:
    """`off` is a flag without a value that stands for the value off. `bare`: so are the others, for on."""
    return field(default=default, metadata={"flags": names, "about": about, "off": off, "bare": bare})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an engine is built from. Every field is a flag and a PARKWAY_<FIELD> variable; raises BadSetting."""

    ctx_size: int = _flag(
        8192, "-c", "--ctx-size", about="tokens of KV in the pool; any chat may use all of it; 0: what fits"
    )
    parallel: int = _flag(4, "-np", "--parallel", about="chats that compute at once; more wait")
    device: DeviceName = _flag("auto", "--device", about="what computes; auto: the GPU if there is one, else the CPU")
    batch_size: int = _flag(
        0, "-b", "--batch-size", about="tokens computed in a step, decoders first; 0: 256 on the CPU, 4096 on a GPU"
    )
    threads: int = _flag(0, "-t", "--threads", about="threads that compute; 0: one for each core this process may use")
    activations: Activations = _flag("int8", "--activations", about="f32 is slower and nearer to the exact values")
    isa: Isa = _flag("auto", "--isa", about="instruction set of the kernels; auto takes the best that the machine has")
    numerics: Numerics = _flag(
        "exact", "--numerics", about="fast (GPU): the libraries' kernels, to compare with; answers depend on traffic"
    )
    cuda_graphs: Switch = _flag("on", "--cuda-graphs", about="replay captured launches (GPU); never changes an answer")
    log: Log = _flag(
        "requests",
        "--log",
        about="what stderr tells; requests: a line for each that has ended; parks: every park, copy and return as well",
    )
    log_format: LogFormat = _flag("text", "--log-format", about="lines of stderr: sentences, or JSON objects")
    context_shift: Switch = _flag(
        "off",
        "--context-shift",
        off="--no-context-shift",
        bare=True,
        about="a chat as long as its context goes on without its oldest tokens; off: it ends",
    )
    preempt: Preempt = _flag(
        "copy",
        "--preempt",
        about="a chat that has to wait for pages is parked: by a copy in host memory, or by computing it again; "
        "off: the context error",
    )
    preempt_ram: int = _flag(
        AUTOMATIC,
        "--preempt-ram",
        about="MiB of host memory for parked chats; 0: compute again; -1: no limit; "
        "-2: what the pool needs, at most a quarter of the machine's memory",
    )
    preempt_async: Switch = _flag(
        "on", "--preempt-async", off="--no-preempt-async", about="copy beside the chats that run; off: between steps"
    )
    preempt_resume: Resume = _flag(
        "head", "--preempt-resume", about="who comes in first: head: who has waited longest; pass: who fits"
    )
    preempt_quantum: float = _flag(
        15.0,
        "--preempt-quantum",
        about="seconds that a chat may run while others are parked; 0: for as long as it has pages",
    )

    def __post_init__(self) -> None:
        for name, low in (
            ("ctx_size", 64 if self.ctx_size else 0),
            ("parallel", 1),
            ("batch_size", 0),
            ("threads", 0),
            ("preempt_ram", AUTOMATIC),
        ):
            value, flag = getattr(self, name), "--" + name.replace("_", "-")
            if value < low:
                raise BadSetting(flag, f"must be at least {low}, not {value}")
            if value > MOST:
                raise BadSetting(flag, f"must be at most {MOST}, not {value}")
        if self.preempt_quantum < 0:
            raise BadSetting("--preempt-quantum", f"must not be negative, not {self.preempt_quantum}")
        if 0 < self.batch_size < self.parallel:
            raise BadSetting("--batch-size", f"must be at least --parallel ({self.parallel}), not {self.batch_size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which model, where it is named by flags. `hf_repo`: owner/name or owner/name:QUANT on the Hugging Face hub."""

    model: str = _flag("", "-m", "--model", about="file or folder of the model")
    hf_repo: str = _flag("", "-hf", "--hf-repo", about="model on the Hugging Face hub: OWNER/NAME[:QUANT]")
    hf_file: str = _flag("", "-hff", "--hf-file", about="which file of --hf-repo")
    hf_token: str = _flag("", "-hft", "--hf-token", about="access token for the hub; default: HF_TOKEN")
    offline: Switch = _flag("off", "--offline", bare=True, about="take what was fetched before, ask no network")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDefaults:
    """What a request gets for a field that it leaves out; None or nothing: the default of the API that is spoken.

    Ranges and grammars are checked where a request's are.
    """

    max_tokens: int | None = _flag(None, "-n", "--predict", about="tokens of an answer")
    temperature: float | None = _flag(None, "--temp", about="0: the most probable token")
    top_k: int | None = _flag(None, "--top-k", about="how many tokens may be drawn; 0: all")
    top_p: float | None = _flag(None, "--top-p", about="… as many as together have this probability")
    min_p: float | None = _flag(None, "--min-p", about="… those that have this share of the largest probability")
    seed: int | None = _flag(None, "-s", "--seed", about="of the draws; else one is drawn for each request")
    repeat_penalty: float | None = _flag(None, "--repeat-penalty", about="for tokens that were there; 1: none")
    repeat_last_n: int | None = _flag(None, "--repeat-last-n", about="… among this many before; -1: all")
    presence_penalty: float | None = _flag(None, "--presence-penalty", about="for tokens of the answer, once")
    frequency_penalty: float | None = _flag(None, "--frequency-penalty", about="… as often as they are there")
    typical_p: float | None = _flag(None, "--typical", about="the tokens least surprising or boring; 1: all")
    top_n_sigma: float | None = _flag(None, "--top-n-sigma", about="… this many standard deviations from the best")
    xtc_probability: float | None = _flag(None, "--xtc-probability", about="how often top choices are left out")
    xtc_threshold: float | None = _flag(None, "--xtc-threshold", about="… the probability of a top choice")
    dynatemp_range: float | None = _flag(None, "--dynatemp-range", about="temperature by entropy, so far from --temp")
    dynatemp_exponent: float | None = _flag(None, "--dynatemp-exp", about="… the power of the entropy")
    mirostat: int | None = _flag(None, "--mirostat", about="keep surprise at a level: version 1 or 2; 0: off")
    mirostat_tau: float | None = _flag(None, "--mirostat-ent", about="… at this many bits")
    mirostat_eta: float | None = _flag(None, "--mirostat-lr", about="… and how fast")
    dry_multiplier: float | None = _flag(None, "--dry-multiplier", about="for tokens that go on with a repetition")
    dry_base: float | None = _flag(None, "--dry-base", about="… times this for each token of it")
    dry_allowed_length: int | None = _flag(None, "--dry-allowed-length", about="… beyond so many")
    dry_penalty_last_n: int | None = _flag(None, "--dry-penalty-last-n", about="… among so many before; -1: context")
    dry_sequence_breakers: tuple[str, ...] = _flag(
        (), "--dry-sequence-breaker", about="… text where one ends, or none; may be repeated"
    )
    n_keep: int | None = _flag(None, "--keep", about="tokens of a prompt that --context-shift keeps; -1: all")
    ignore_eos: Switch = _flag("off", "--ignore-eos", bare=True, about="answers end at their limit only")
    cache_prompt: Switch = _flag(
        "on", "--cache-prompt", off="--no-cache-prompt", bare=True, about="find pages that were computed before"
    )
    logit_bias: tuple[str, ...] = _flag((), "-l", "--logit-bias", about="ID+NUMBER or ID-NUMBER; may be repeated")
    stop: tuple[str, ...] = _flag((), "-r", "--reverse-prompt", about="text that ends an answer; may be repeated")
    samplers: str = _flag("", "--samplers", about="order of samplers: names with ; between, or letters")
    grammar: str = _flag("", "--grammar", about="grammar (GBNF) that answers keep to")
    json_schema: str = _flag("", "-j", "--json-schema", about="JSON Schema that answers keep to")
    chat_template_kwargs: str = _flag(
        "", "--chat-template-kwargs", about="JSON object of variables for the chat template"
    )
    reasoning: Reasoning = _flag("auto", "-rea", "--reasoning", about="whether a model thinks; auto: as it does itself")
    reasoning_effort: str = _flag("", "--reasoning-effort", about="low, medium, …, for templates that know it")
    reasoning_format: ReasoningFormat = _flag(
        "auto", "--reasoning-format", about="none: thoughts stay in the content; else they are apart"
    )

    def __post_init__(self) -> None:
        for name in ("json_schema", "chat_template_kwargs"):
            json_object(getattr(self, name) or "{}", "--" + name.replace("_", "-"))


def json_object(text: str, flag: str) -> dict[str, Any]:
    """Raises BadSetting."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadSetting(flag, f"is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadSetting(flag, "must be a JSON object")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What the door to the network needs beside the engine."""

    host: str = _flag("127.0.0.1", "--host", about="address to listen on")
    port: int = _flag(8080, "--port", about="port to listen on")
    alias: str = _flag(
        "", "-a", "--alias", about="name of the model in the API, or several with commas; default: the file's own name"
    )
    api_key: tuple[str, ...] = _flag(
        (), "--api-key", about="key that clients must have, or several with commas; may be repeated; default: none"
    )
    cors_origins: str = _flag(
        "",
        "--cors-origins",
        about="pages of which origins may ask: several with commas, localhost for all of this machine, * for all; "
        "default: none",
    )
    max_body_bytes: int = _flag(32 * 2**20, "--max-body-bytes", about="most bytes of a request's body")
    max_queue: int = _flag(1024, "--max-queue", about="chats that may wait for a slot; more are refused with a 429")
    chat_template: str = _flag("", "--chat-template", about="Jinja template in place of the model's own")
    tool_call_parser: str = _flag(
        AUTO, "--tool-call-parser", about="how the model writes tool calls; auto: as its chat template shows"
    )
    pooling: PoolingName = _flag(
        AUTO,
        "--pooling",
        about="what a text's embedding is: of its last token, the mean of all; auto: as the file says",
    )
    drain_seconds: float = _flag(30.0, "--drain-seconds", about="how long SIGTERM lets running requests finish")
    notices: Notices = _flag(
        "comments", "--notices", about="how a stream tells that its chat is parked: not, in comments, in chunks as well"
    )
    sse_ping_interval: float = _flag(
        -1.0, "--sse-ping-interval", about="seconds of silence after which a stream gets a comment; 0 or -1: never"
    )
    slots: Switch = _flag("on", "--slots", off="--no-slots", bare=True, about="GET /slots tells what each slot does")
    sleep_idle_seconds: float = _flag(
        -1.0,
        "--sleep-idle-seconds",
        about="seconds without a request after which the engine ends, until the next one comes; -1: never",
    )
    trace: str = _flag("", "--trace", about="file that gets a line for every view of the slots; may be drawn later")
    defaults: RequestDefaults = field(default_factory=RequestDefaults)

    @property
    def aliases(self) -> tuple[str, ...]:
        return _listed(self.alias)

    @property
    def origins(self) -> tuple[str, ...]:
        return _listed(self.cors_origins)

    @property
    def api_keys(self) -> tuple[str, ...]:
        return _listed(",".join(self.api_key))

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise BadSetting("--port", f"must be between 0 and 65535, not {self.port}")
        for name in ("max_body_bytes", "max_queue"):
            if not 0 <= (value := getattr(self, name)) <= MOST:
                raise BadSetting("--" + name.replace("_", "-"), f"must be between 0 and {MOST}, not {value}")
        if self.drain_seconds < 0:
            raise BadSetting("--drain-seconds", f"must not be negative, not {self.drain_seconds}")
        if self.sleep_idle_seconds < 0 and self.sleep_idle_seconds != -1:
            raise BadSetting("--sleep-idle-seconds", f"must be -1 or not negative, not {self.sleep_idle_seconds}")
        if self.sse_ping_interval < -1:
            raise BadSetting("--sse-ping-interval", f"must be at least -1, not {self.sse_ping_interval}")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())
