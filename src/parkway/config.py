"""The settings, once: names, defaults, flags and checks. The command line and the environment are read from here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from parkway.errors import BadSetting

Activations = Literal["int8", "f32"]
Isa = Literal["auto", "avx512", "avx2", "portable"]
DeviceName = Literal["auto", "cpu", "cuda"]
Numerics = Literal["exact", "fast"]
Switch = Literal["on", "off"]
Log = Literal["warnings", "parks"]
Preempt = Literal["copy", "recompute", "off"]
Resume = Literal["head", "pass"]
Notices = Literal["off", "comments", "chunks"]
Victim = Literal["cheapest", "smallest", "largest", "youngest", "oldest"]


MOST = 2**31 - 1
"""Of every whole number."""
AUTOMATIC = -2
"""Of --preempt-ram: sized by the pool and the machine."""


def variable_count(environment: Mapping[str, str], name: str) -> int:
    """The whole number of a variable that is not a setting; 0 unless it is set. Raises BadSetting, which names it."""
    text = environment.get(name, "0")
    if not text.isdecimal():
        raise BadSetting(name, f"must be a whole number that is not negative, not {text!r}")
    return int(text)


def _flag(default: Any, *names: str, about: str, off: str = "") -> Any:
    """`off` is a flag without a value that stands for the value off."""
    return field(default=default, metadata={"flags": names, "about": about, "off": off})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an engine is built from. Every field is a flag and a PARKWAY_<FIELD> variable; raises BadSetting."""

    ctx_size: int = _flag(8192, "-c", "--ctx-size", about="tokens of KV in the pool; any chat may use all of it")
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
    log: Log = _flag("warnings", "--log", about="what stderr tells; parks: every park, copy and return as well")
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
        "head", "--preempt-resume", about="who comes back first: head: who was parked first; pass: who fits"
    )
    preempt_quantum: float = _flag(
        5.0,
        "--preempt-quantum",
        about="seconds that a chat may run while others are parked; 0: for as long as it has pages",
    )

    def __post_init__(self) -> None:
        for name, low in (
            ("ctx_size", 64),
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
class ServerSettings:
    """What the door to the network needs beside the engine."""

    host: str = _flag("127.0.0.1", "--host", about="address to listen on")
    port: int = _flag(8080, "--port", about="port to listen on")
    alias: str = _flag("", "-a", "--alias", about="name of the model in the API; default: the file's own name")
    drain_seconds: float = _flag(30.0, "--drain-seconds", about="how long SIGTERM lets running requests finish")
    notices: Notices = _flag(
        "comments", "--notices", about="how a stream tells that its chat is parked: not, in comments, in chunks as well"
    )
    sse_ping_interval: float = _flag(
        -1.0, "--sse-ping-interval", about="seconds of silence after which a stream gets a comment; 0 or -1: never"
    )
    trace: str = _flag("", "--trace", about="file that gets a line for every view of the slots; may be drawn later")

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise BadSetting("--port", f"must be between 0 and 65535, not {self.port}")
        if self.drain_seconds < 0:
            raise BadSetting("--drain-seconds", f"must not be negative, not {self.drain_seconds}")
        if self.sse_ping_interval < -1:
            raise BadSetting("--sse-ping-interval", f"must be at least -1, not {self.sse_ping_interval}")
