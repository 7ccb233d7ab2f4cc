"""This machine: the cores that may be used, and in one line what a figure was measured on. Knows no figure."""

import ctypes
import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

_VECTORS = (("amx_int8", "(AMX)"), ("avx512_vnni", "(AVX-512 VNNI)"), ("avx512f", "(AVX-512)"), ("avx2", "(AVX2)"))
"""Flags of the system for what processors can do, widest first."""


def machine() -> str:
    """This machine in one line: GPU, processor, cores that this process may use, memory, system."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    parts = (gpu(), _processor(), f"{len(cores())} cores", f"{memory:.0f} GiB")
    return f"{', '.join(part for part in parts if part)}, {platform.system()} {platform.machine()}"


def cores() -> frozenset[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def gpu() -> str | None:
    """The name of the first NVIDIA GPU, None where there is none. Asks the driver itself, which takes no library."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(96)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    return name.value.decode() if driver.cuDeviceGetName(name, len(name), device) == 0 else None


def gpu_driver() -> str | None:
    """The version of the NVIDIA driver, None where there is none."""
    told = Path("/proc/driver/nvidia/version")
    found = re.search(r" (\d+\.\d+(?:\.\d+)?) ", told.read_text()) if told.exists() else None
    return found[1] if found else None


def cache_folder() -> Path:
    """Where Parkway keeps what it would otherwise fetch, compile or measure again, of this user."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache") / "parkway"


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python, Parkway, NumPy and the packages named."""
    return {"python": platform.python_version()} | {name: version(name) for name in ("parkway", "numpy", *packages)}


def _processor() -> str:
    """Its name, and the widest vectors that it has: rented machines of several generations go by one name."""
    told = _cpuinfo()
    name = told.get("model name") or platform.processor() or platform.machine()
    has = set(told.get("flags", "").split())
    return " ".join([name, *[vectors for flag, vectors in _VECTORS if flag in has][:1]])


def _cpuinfo() -> dict[str, str]:
    """What the system tells of the first processor; nothing where it is no Linux."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
