"""This machine: the cores that may be used, and in one line what a figure was measured on. Knows no figure."""

import os
import platform
from importlib.metadata import version
from pathlib import Path


def machine() -> str:
    """This machine in one line: processor, cores that this process may use, memory, system."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{_processor()}, {len(cores())} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"


def cores() -> frozenset[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python, Parkway, NumPy and the packages named."""
    return {"python": platform.python_version()} | {name: version(name) for name in ("parkway", "numpy", *packages)}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
