"""The settings, once: names, defaults, flags and checks. The command line and the environment are read from here."""

from dataclasses import dataclass, field
from typing import Any, Literal

from parkway.errors import BadSetting

Activations = Literal["int8", "f32"]
Isa = Literal["auto", "avx512", "avx2", "portable"]
DeviceName = Literal["auto", "cpu", "cuda"]
Numerics = Literal["exact", "fast"]
Switch = Literal["on", "off"]


def _flag(default: Any, *names: str, about: str) -> Any:
    return field(default=default, metadata={"flags": names, "about": about})


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

    def __post_init__(self) -> None:
        for name, low in (("ctx_size", 64), ("parallel", 1), ("batch_size", 0), ("threads", 0)):
            if getattr(self, name) < low:
                raise BadSetting("--" + name.replace("_", "-"), f"must be at least {low}, not {getattr(self, name)}")
        if 0 < self.batch_size < self.parallel:
            raise BadSetting("--batch-size", f"must be at least --parallel ({self.parallel}), not {self.batch_size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What the door to the network needs beside the engine."""

    host: str = _flag("127.0.0.1", "--host", about="address to listen on")
    port: int = _flag(8080, "--port", about="port to listen on")
    alias: str = _flag("", "-a", "--alias", about="name of the model in the API; default: the file's own name")
    drain_seconds: float = _flag(30.0, "--drain-seconds", about="how long SIGTERM lets running requests finish")

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise BadSetting("--port", f"must be between 0 and 65535, not {self.port}")
        if self.drain_seconds < 0:
            raise BadSetting("--drain-seconds", f"must not be negative, not {self.drain_seconds}")
