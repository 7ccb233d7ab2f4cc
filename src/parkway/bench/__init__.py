"""The figures of this machine: prefill and decode, measured in quiet windows."""

from parkway.bench.command import run

__all__ = ["run"]
