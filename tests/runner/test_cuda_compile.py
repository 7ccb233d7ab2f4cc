"""Kernels compiled by processes of their own: every configuration once, and no matter what has started them."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from parkway.runner import cuda_compile
from tests.checkpoints import tiny_llama

TYPES = ("Q4_K", "Q6_K")


class Counted:
    rows = 6

    def __init__(self, name: str, configs: range) -> None:
        self.name, self.candidates = name, tuple((i,) for i in configs)
        self.runs: Counter[tuple[int, int]] = Counter()

    def output(self, config: tuple[int, ...], rows: slice) -> torch.Tensor:
        self.runs[config[0], rows.stop] += 1
        if config == (3,):
            raise RuntimeError("does not compile")
        return torch.zeros(1)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_shares_make_a_whole(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    kernels = [Counted("linear", range(7)), Counted("gated", range(7)), Counted("linear", range(2, 7))]
    monkeypatch.setattr(cuda_compile, "subjects", lambda device, types: iter(kernels))
    for share in range(workers):
        cuda_compile.compile_share(share, workers, TYPES)
    expected = {(i, stop): 1 for i in range(7) for stop in (1, 6) if (i, stop) != (3, 6)}
    assert [each.runs for each in kernels[:2]] == [expected, expected]
    assert kernels[2].runs == {(i, stop): 1 for i, stop in expected if i >= 2}


def test_no_kernel_is_compiled_in_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    makers: dict[tuple[str, int], set[int]] = {}
    for share in range(3):
        subjects = [Counted(name, range(first, 7)) for first in range(3) for name in ("linear", "gated")]
        monkeypatch.setattr(cuda_compile, "subjects", lambda device, types, made=subjects: iter(made))
        cuda_compile.compile_share(share, 3, TYPES)
        for each in subjects:
            for config, _ in each.runs:
                makers.setdefault((each.name, config), set()).add(share)
    assert len(makers) == 14
    assert all(len(shares) == 1 for shares in makers.values())


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    """Without a GPU the compilers end at once; that is the check's to tell."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from parkway.runner.cuda_compile import compile_side_by_side\n"
        "compile_side_by_side(())\n"
        "print('once')\n"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "once\n"), done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_script_that_has_a_model_needs_none_either(tmp_path: Path, cache_folder: Path) -> None:
    model, script = tiny_llama(tmp_path / "model.gguf"), tmp_path / "script.py"
    script.write_text(
        "from parkway import LLM, SamplingParams\n"
        f"with LLM({str(model)!r}, ctx_size=256, parallel=1) as llm:\n"
        "    print(llm.generate([1, 2], SamplingParams(max_tokens=2, ignore_eos=True))[0].finish_reason)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "length\n"), done.stderr
    assert [*cache_folder.rglob("bits/*.json")], "nothing was checked"


def test_a_compiler_ends_with_who_started_it() -> None:
    code = "import sys, threading; from parkway.runner import cuda_compile as c; c._end_with_parent()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 1
