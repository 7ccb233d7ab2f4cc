"""Loads the C++ library, building it first where it has to. abi.h has the twin of every struct here."""

import ctypes as C
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from parkway.backends.cpu import build
from parkway.errors import NoRoom, StartError, Unsupported
from parkway.machine import cache_folder

ABI_VERSION = 9
MAX_TOP = 20
ALIGNMENT_BYTES = 64
ROW_TILE = 16
SPLIT_TOKENS = 128
SPLIT_ROWS = 4
PARTIAL_BYTES = (2 + 256) * 4
FIXED, ROWS, LOGIT_ROWS, TILES, MERGES, RUNS = range(6)


class Rows(C.Structure):
    _fields_ = [(name, C.c_void_p) for name in ("f", "q", "d", "s", "sum")] + [("k", C.c_int64)]


class RowEdits(C.Structure):
    _fields_ = [
        *[(name, C.c_void_p) for name in ("ids", "shrink", "grow", "offset")],
        ("count", C.c_int64),
        ("mask", C.c_void_p),
        ("chain", C.c_void_p),
        ("steps", C.c_int64),
    ]


class Sample(C.Structure):
    _fields_ = [
        ("temperature", C.c_float),
        ("top_p", C.c_float),
        ("min_p", C.c_float),
        ("top_k", C.c_int32),
        ("target", C.c_int32),
        ("top", C.c_int32),
        ("seed", C.c_uint64),
        ("prompt_index", C.c_int32),
        ("choice_index", C.c_int32),
        ("position", C.c_int32),
        ("draw", C.c_int32),
        ("edits", RowEdits),
        ("token", C.c_int32),
        ("logprob", C.c_float),
        ("top_ids", C.c_int32 * MAX_TOP),
        ("top_logprobs", C.c_float * MAX_TOP),
        ("surprise", C.c_double),
    ]


class Batch(C.Structure):
    _fields_ = [("rows", C.c_int64), ("logit_rows", C.c_int64)] + [
        (name, C.c_void_p) for name in ("tokens", "positions", "table_of", "pages", "logit_row", "samples", "slots")
    ]


class Segment(C.Structure):
    _fields_ = [
        ("kernel", C.c_void_p),
        ("weights", C.c_void_p),
        ("groups", C.c_int64),
        ("group_bytes", C.c_int64),
        ("out", C.c_void_p),
        ("out_stride", C.c_int64),
        ("bias", C.c_void_p),
        ("residual", C.c_void_p),
    ]


class Instruction(C.Structure):
    _fields_ = [
        ("kernel", C.c_void_p),
        ("counts", C.c_int32),
        ("on_logit_rows", C.c_int32),
        ("items", C.c_int64),
        ("n", C.c_int64 * 8),
        ("f", C.c_float * 2),
        ("p", C.c_void_p * 8),
        ("segment", Segment * 3),
    ]


class Layout(C.Structure):
    """Where a layer lies in a page; rows.h explains."""

    _fields_ = [
        *[(name, C.c_int64) for name in ("kv_heads", "head_dim", "page_bytes", "layer_bytes", "layer")],
        ("tables", C.c_void_p),
    ]


_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "pk_abi_version": (C.c_int, []),
    "pk_best_isa": (C.c_char_p, []),
    "pk_kernel_named": (C.c_void_p, [C.c_char_p, C.c_char_p]),
    "pk_packed_bytes": (C.c_int64, [C.c_char_p, C.c_int64, C.c_int64]),
    "pk_pack": (C.c_int, [C.c_char_p, C.c_void_p, C.c_int64, C.c_int64, C.c_void_p]),
    "pk_allocate": (C.c_void_p, [C.c_int64]),
    "pk_release": (None, [C.c_void_p, C.c_int64]),
    "pk_pool_new": (C.c_void_p, [C.c_int]),
    "pk_pool_free": (None, [C.c_void_p]),
    "pk_program_new": (C.c_void_p, [C.c_void_p, C.POINTER(Instruction), *[C.c_int64] * 5]),
    "pk_program_free": (None, [C.c_void_p]),
    "pk_program_run": (None, [C.c_void_p, C.POINTER(Batch)]),
    "pk_program_again": (None, [C.c_void_p, C.POINTER(Batch), C.c_int64, C.c_int64]),
}


@cache
def library() -> C.CDLL:
    """The wheel's own library, else one built from these sources and kept in the cache folder. Raises StartError."""
    shipped = Path(__file__).parent / "lib" / build.LIBRARY
    path = shipped if shipped.exists() else _built()
    try:
        loaded = C.CDLL(str(path))
        version = loaded.pk_abi_version()
    except (OSError, AttributeError) as error:
        raise StartError(f"{path}: the CPU kernels can't be loaded: {error}") from error
    if version != ABI_VERSION:
        raise StartError(
            f"{path}: the CPU kernels have ABI {version}, this Parkway needs {ABI_VERSION}; install both anew"
        )
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def _built() -> Path:
    folder = cache_folder() / "kernels" / build.source_hash()
    path = folder / build.LIBRARY
    try:
        if not path.exists():
            with build.alone(folder):
                _make(path)
        return path
    except build.NoCompiler as error:
        raise StartError(str(error)) from error
    except subprocess.CalledProcessError as error:
        raise StartError(f"the CPU kernels did not compile with {error.cmd[0]}: {error.output[-2000:]}") from error
    except OSError as error:
        raise StartError(f"{folder}: the CPU kernels can't be kept there: {error.strerror or error}") from error


def _make(path: Path) -> None:
    """Compiles where nobody else has done so meanwhile."""
    if not path.exists():
        print("parkway: compiling the CPU kernels for this machine, once; it takes about a minute", file=sys.stderr)
        build.compile_library(path.parent)


def best_isa() -> str:
    return str(library().pk_best_isa().decode())


def kernel(isa: str, name: str) -> int:
    """Address of a kernel for an instruction set; Unsupported where there is none of that name."""
    address = library().pk_kernel_named(isa.encode(), name.encode())
    if not address:
        raise Unsupported(f"the CPU backend has no kernel {name}")
    return int(address)


def aligned(size: int, to: int = ALIGNMENT_BYTES) -> int:
    """`size` rounded up to a multiple of `to`; by default a cache line, where vectors load fastest."""
    return -(-size // to) * to


class Memory:
    """Zeroed memory outside Python's heap, on large pages where there are some; given back with the object."""

    def __init__(self, size_bytes: int, purpose: str) -> None:
        self.size_bytes = max(size_bytes, 1)
        address = library().pk_allocate(self.size_bytes)
        if not address:
            raise NoRoom(f"no memory for {purpose}: {size_bytes:,} bytes can't be had")
        self.address: int = address

    def array(self) -> npt.NDArray[np.uint8]:
        """The whole memory as uint8; valid as long as this object lives."""
        return np.ctypeslib.as_array((C.c_uint8 * self.size_bytes).from_address(self.address))

    def __del__(self) -> None:
        if getattr(self, "address", None):
            library().pk_release(self.address, self.size_bytes)


class Pool:
    """Threads that compute; the thread that runs a program is one of them."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.address: int = library().pk_pool_new(threads)

    def __del__(self) -> None:
        if getattr(self, "address", None):
            library().pk_pool_free(self.address)
