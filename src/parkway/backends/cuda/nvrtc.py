"""Compiles this folder's CUDA C++ for the GPU at hand, keeps what came out, and launches it on torch's stream.

A kernel is a source file and one line behind it that names its template arguments; it takes one struct by value.
"""

import ctypes as C
import hashlib
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc

from parkway.errors import StartError
from parkway.machine import cache_folder

SOURCES = Path(__file__).parent
# Contraction would fuse multiplications and additions as the compiler likes, and so differently in two kernels.
FLAGS = ("--std=c++17", "--fmad=false", f"--include-path={SOURCES}")
SPARE_BYTES = 48 * 1024
"""Shared memory that a block may have without being asked for."""
_thread = threading.local()


class Kernel:
    """A compiled kernel, on the device."""

    def __init__(self, cubin: bytes) -> None:
        enter_device()
        self._library = _checked(driver.cuLibraryLoadData(cubin, [], [], 0, [], [], 0))
        kernel = _checked(driver.cuLibraryGetKernel(self._library, b"kernel"))
        self._function = _checked(driver.cuKernelGetFunction(kernel))
        self._room_bytes = SPARE_BYTES

    def launch(
        self, grid: tuple[int, int], threads: int, shared_bytes: int, arguments: C.Structure, *, pdl: int
    ) -> None:
        """Queues it. pdl: it may begin before the kernel before it has ended, and waits for that one itself."""
        enter_device()
        self._make_room(shared_bytes)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = *grid, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared_bytes
        config.hStream = torch.cuda.current_stream().cuda_stream
        config.attrs = [_programmatic()] if pdl else []
        config.numAttrs = len(config.attrs)
        pointers = (C.c_void_p * 1)(C.addressof(arguments))
        _checked(driver.cuLaunchKernelEx(config, self._function, C.addressof(pointers), 0))

    def _make_room(self, shared_bytes: int) -> None:
        if shared_bytes > self._room_bytes:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _checked(driver.cuFuncSetAttribute(self._function, attribute, shared_bytes))
            self._room_bytes = shared_bytes


@cache
def kernel(source: str, line: str) -> Kernel:
    """The kernel that `line` makes of a file of this folder. Raises StartError with the compiler's words."""
    return Kernel(kept(source, line, architecture()))


@cache
def architecture() -> str:
    """What to compile for: with "a", also what only this generation of GPUs has."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def kept(source: str, line: str, architecture: str) -> bytes:
    """The cubin, compiled where the cache folder has none of these sources yet."""
    path = cache_folder() / "kernels" / f"{_hash(source, line, architecture)}.cubin"
    if path.exists():
        return path.read_bytes()
    cubin, _ = compiled(source, line, architecture)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")  # appears by one rename, whoever compiles it too
    part.write_bytes(cubin)
    part.replace(path)
    return cubin


def compiled(source: str, line: str, architecture: str) -> tuple[bytes, str]:
    """(cubin, what the compiler said). Raises StartError with its words if that is all that came of it."""
    text = f'#include "{source}"\n{line}\n'.encode()
    program = _checked(nvrtc.nvrtcCreateProgram(text, b"kernel.cu", 0, [], []))
    flags = [flag.encode() for flag in (*FLAGS, f"--gpu-architecture={architecture}")]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    said = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    nvrtc.nvrtcGetProgramLog(program, said)
    log = said.decode(errors="replace").strip("\0\n")
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise StartError(f"{source} did not compile for {architecture}: {log[:2000]}")
    cubin = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
    _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    nvrtc.nvrtcDestroyProgram(program)
    return bytes(cubin), log


def _hash(source: str, line: str, architecture: str) -> str:
    digest = hashlib.sha256(repr((FLAGS[:-1], _checked(nvrtc.nvrtcVersion()), source, line, architecture)).encode())
    for path in sorted([*SOURCES.glob("*.cu"), *SOURCES.glob("*.h")]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:24]


def _programmatic() -> Any:
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    return attribute


def enter_device() -> None:
    """Makes torch's context this thread's."""
    if getattr(_thread, "entered", False):
        return
    torch.cuda.init()
    device = _checked(driver.cuDeviceGet(torch.cuda.current_device()))
    _checked(driver.cuCtxSetCurrent(_checked(driver.cuDevicePrimaryCtxRetain(device))))
    _thread.entered = True


def _checked(answer: tuple[Any, ...]) -> Any:
    """What a call of the driver or the compiler returned besides its status. Raises StartError naming that."""
    status, *rest = answer
    if status:
        raise StartError(f"CUDA: {status.name}")
    return rest[0] if len(rest) == 1 else tuple(rest)
