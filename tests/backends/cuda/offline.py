"""Compiles, without a GPU, exactly what launches would compile for a Hopper GPU, and reads what came out.

For processes of their own, without TRITON_INTERPRET: it replaces how kernels are launched.
"""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import triton
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction
from triton.runtime.jit import create_function_from_signature

_TARGET = GPUTarget("cuda", 90, 32)
_CUOBJDUMP = Path(nvidia.__file__).parent / "bin" / "cuobjdump"


class Compiled(NamedTuple):
    """Bytes of shared memory and of stack (a spilled register lies there), registers of a thread, the PTX."""

    shared: int
    stack: int
    registers: int
    ptx: str


def compile_instead(kernel: Any) -> list[Compiled]:
    """From now on a launch of `kernel` only compiles what it would have run, and adds it to the list."""
    backend = CUDABackend(_TARGET)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    made: list[Compiled] = []

    def run(*args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        options |= {"debug": False, "instrumentation_mode": ""}
        bound, specialization, rest = bind(*args, **options)
        made.append(_compile(kernel, *kernel._pack_args(backend, options, bound, specialization, rest)))

    kernel.run = run
    return made


def _compile(kernel: Any, options: Any, signature: Any, constants: Any, attributes: Any) -> Compiled:
    source = GluonASTSource if isinstance(kernel, GluonJITFunction) else ASTSource
    compiled = triton.compile(
        source(kernel, signature, constants, attributes), target=_TARGET, options=dict(options.__dict__)
    )
    stack, registers = _resources(compiled.asm["cubin"])
    return Compiled(compiled.metadata.shared, stack, registers, compiled.asm["ptx"])


def _resources(cubin: bytes) -> tuple[int, int]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [str(_CUOBJDUMP), "--dump-resource-usage", str(path)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counts = dict(word.split(":") for word in told.split() if word.startswith(("STACK:", "REG:")))
    return int(counts["STACK"]), int(counts["REG"])
