"""What a module that compiles kernels tells, run without the interpreter in a process of its own."""

import json
import os
import subprocess
import sys
from typing import Any


def told_by(module: str) -> list[dict[str, Any]]:
    """A kernel each, as `python -m tests.backends.cuda.MODULE` prints them."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", f"tests.backends.cuda.{module}"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]
