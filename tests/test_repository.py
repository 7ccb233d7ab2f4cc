"""The shape of the repository: sizes, docstrings, locked versions, and that README says only what exists."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import import_module, metadata
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks import figures, records
from parkway import __version__, cli

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PYTHON = sorted(chain(SOURCES, *((ROOT / folder).rglob("*.py") for folder in ("tests", "benchmarks", "simulate"))))
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()

FILE_LINES = 300
FUNCTION_LINES = 60
KERNEL_LINES = 100
"""Of a function whose decorator makes it a kernel."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PYTHON, ids=named)
def test_every_module_says_what_it_is(path: Path) -> None:
    if path.read_text():
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring
        assert "TODO" not in docstring


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_no_file_is_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES


@pytest.mark.parametrize("path", PYTHON, ids=named)
def test_no_function_is_too_long(path: Path) -> None:
    assert not list(too_long(path.read_text()))


def too_long(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            kernel = any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)
            if lines > (KERNEL_LINES if kernel else FUNCTION_LINES):
                yield f"{node.name}: {lines} lines"


def test_a_function_that_is_too_long_is_found() -> None:
    lines = ["def f():"] + ["    pass"] * FUNCTION_LINES
    assert list(too_long("\n".join(lines))) == ["f: 61 lines"]
    assert not list(too_long("\n".join(lines[:-1])))


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_a_capture_survives_a_thread_that_pins_memory(path: Path) -> None:
    assert not list(frail_captures(path.read_text()))


def frail_captures(source: str) -> Iterator[str]:
    """Captures of graphs that a call of another thread would invalidate: those in any mode but the thread's own."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("cuda.graph"):
            modes = [each.value for each in node.keywords if each.arg == "capture_error_mode"]
            if [ast.unparse(mode) for mode in modes] != ["'thread_local'"]:
                yield f"line {node.lineno}"


def test_a_capture_that_does_not_survive_is_found() -> None:
    assert list(frail_captures("with torch.cuda.graph(g, stream=s):\n    run()")) == ["line 1"]
    assert list(frail_captures("torch.cuda.graph(g, capture_error_mode='relaxed')")) == ["line 1"]
    assert not list(frail_captures("torch.cuda.graph(g, capture_error_mode='thread_local')"))


def code_of(text: str) -> list[str]:
    """The lines of all shell examples, without comments and continuations."""
    fenced = re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)
    joined = "\n".join(fenced).replace("\\\n", " ")
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


def targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def test_readme_names_only_make_targets_that_exist() -> None:
    named_targets = {found for command in commands() for found in re.findall(r"\bmake ([a-z]+)\b", command)}
    assert {"serve", "test", "figures"} <= named_targets <= targets((ROOT / "Makefile").read_text())


def inline_code(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def commands() -> set[str]:
    return {line.strip() for line in [*code_of(README), *inline_code(README)]}


def test_readme_names_only_subcommands_and_flags_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    used = [command.split() for command in commands() if command.startswith("parkway ")]
    assert {words[1] for words in used} >= {"serve", "inspect", "verify", "bench"}
    for words in used:
        with pytest.raises(SystemExit):
            cli.main([words[1], "--help"])
        told = capsys.readouterr().out
        for flag in (word for word in words if word.startswith("-")):
            assert re.search(rf"(?<!\S){flag}\b", told), f"{' '.join(words)}: {flag}"


def test_readme_names_only_benchmarks_that_exist() -> None:
    modules = {found for command in commands() for found in re.findall(r"-m (benchmarks\.\w+)", command)}
    for module in modules:
        import_module(module)


def test_readme_has_the_figures_that_were_measured() -> None:
    by_machine = {path.stem: records.read(path) for path in sorted(records.RESULTS.glob("*.json"))}
    assert figures.with_figures(README, by_machine) == README, "run `make figures`"


def test_files_that_the_documents_name_exist() -> None:
    linked = re.findall(r"\]\(([^)#:]+)\)", README + ARCHITECTURE)
    assert linked
    for target in linked:
        assert (ROOT / target).exists(), target


def test_the_tree_in_the_architecture_is_the_tree() -> None:
    package = ROOT / "src" / "parkway"
    kinds = ("*.py", "*.cpp", "*.cu", "*.h")
    files = {
        str(path.relative_to(package)) for kind in kinds for path in package.rglob(kind) if path.stem != "__init__"
    }
    tree = ARCHITECTURE.split("```text\n")[1].split("```")[0]
    assert {line.split()[0] for line in tree.splitlines()} == files


def test_an_old_python_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    command = ["make", "serve", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"Parkway needs Python 3.11 or newer, and {old} is not" in done.stderr


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[^ =]+", line) for line in lines)
    return {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines}


def test_the_package_has_one_version() -> None:
    assert metadata.version("parkway") == __version__


def test_locks_pin_what_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed, extras = project["dependencies"], project["optional-dependencies"]
    serve, test = pins("requirements.lock"), pins("requirements-dev.lock")
    clients = pins("requirements-clients.lock")
    assert serve.items() <= test.items()
    assert "torch" not in serve
    for locked, texts in ((serve, needed), (test, extras["dev"]), (clients, extras["clients"])):
        for requirement in map(Requirement, texts):
            assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement
