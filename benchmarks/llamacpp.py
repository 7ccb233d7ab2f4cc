"""llama.cpp as a subject of measurement, in a worker under an interpreter of its own. Knows no Parkway engine."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parkway.bench.figures import Timed

WORKER = Path(__file__).with_name("llamacpp_worker.py")
BUILD = "CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary llama-cpp-python llama-cpp-python"


class Worker:
    """The worker's process; `ask` gives it a command and waits for the answer. Raises RuntimeError when it dies."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [python, WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands, self._answers = self._process.stdin, self._process.stdout
        self.pid = self._process.pid

    def ask(self, name: str, **given: Any) -> dict[str, Any]:
        self._commands.write(json.dumps([name, given]) + "\n")
        answer = self._answers.readline()
        if not answer:
            raise RuntimeError(f"the llama.cpp worker ended with exit code {self._process.wait()}")
        answered: dict[str, Any] = json.loads(answer)
        return answered

    def close(self) -> None:
        self._commands.close()
        self._process.wait()
        self._answers.close()


class LlamaSubject:
    """A `Subject`: one model file in llama.cpp."""

    def __init__(self, worker: Worker, path: Path, threads: int) -> None:
        self._worker = worker
        self.pids = (os.getpid(), worker.pid)
        worker.ask("load", path=str(path), threads=threads)

    def prefill(self, tokens: int, seconds: float) -> Timed:
        return Timed(**self._worker.ask("prefill", tokens=tokens, seconds=seconds))

    def ready(self, streams: int, answer_tokens: int) -> None:
        self._worker.ask("ready", streams=streams, answer_tokens=answer_tokens)

    def decode(self, seconds: float) -> Timed:
        return Timed(**self._worker.ask("decode", seconds=seconds))


@contextmanager
def llama_subject(python: Path, path: Path, threads: int) -> Iterator[tuple[LlamaSubject, str]]:
    """llama.cpp on a file as it is; the binding's version, with what it was built for."""
    with closing(Worker(python)) as worker:
        yield LlamaSubject(worker, path, threads), worker.ask("facts")["version"]


@contextmanager
def llama_subject_q4_0(python: Path, path: Path, threads: int) -> Iterator[LlamaSubject]:
    """llama.cpp on a file that it has requantised to Q4_0."""
    with TemporaryDirectory(prefix="parkway-") as folder, closing(Worker(python)) as worker:
        made = Path(folder) / "q4_0.gguf"
        worker.ask("requantize", source=str(path), target=str(made))
        yield LlamaSubject(worker, made, threads)
