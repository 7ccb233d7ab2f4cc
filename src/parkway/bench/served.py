"""A server process on a free loopback port, as a user would start it. Knows nothing of what it is asked."""

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from parkway.config import EngineSettings, ModelSettings, RequestDefaults, ServerSettings
from parkway.errors import StartError
from parkway.flags import as_flags, without_variables

_SERVING = re.compile(r"parkway: serving .* at http://([^:]+):(\d+)$")
_STOP_SECONDS = 10.0


class Served:
    """A server that is up. `pids`: the API process, then the engine process."""

    def __init__(self, process: "subprocess.Popen[str]", address: tuple[str, int]) -> None:
        self.address = address
        self.pids = (process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True)))

    def gauge(self, name: str) -> float:
        """A gauge or counter of /metrics, named without its prefix. Raises LookupError if there is none."""
        host, port = self.address
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=60) as page:
            return value_of(page.read().decode(), name)


def value_of(page: str, name: str) -> float:
    """The value of vLLM's metric `name` on a page. Raises LookupError if it isn't there."""
    found = re.search(rf"^vllm:{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
    if found is None:
        raise LookupError(f"/metrics has no vllm:{name}")
    return float(found[1])


def command(path: Path, settings: EngineSettings) -> list[str]:
    """`parkway serve` on a free port; every setting is spelt out, so that no variable of the user's plays a part."""
    flags = [*as_flags(settings), *as_flags(ServerSettings(port=0))]
    return [sys.executable, "-m", "parkway.cli", "serve", str(path), *flags]


@contextmanager
def served(arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Starts a server, with more environment `variables`, and ends it again.

    Raises StartError with the server's own sentence if it doesn't come up.
    """
    environment = without_variables(os.environ, RequestDefaults, ModelSettings) | dict(variables or {})
    # A group of its own: Ctrl-C is for whoever started it, who ends it.
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=environment, process_group=0)
    try:
        yield Served(process, _address(process))
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _address(process: "subprocess.Popen[str]") -> tuple[str, int]:
    assert process.stderr is not None
    sentence = ""
    for line in process.stderr:
        if found := _SERVING.match(line.rstrip()):
            return found[1], int(found[2])
        sentence = line.strip()
    raise StartError(sentence.removeprefix("parkway: ") or "the server ended without a word")
