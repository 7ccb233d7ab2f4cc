"""`parkway verify` end to end: nothing differs in Parkway as it is, and what is planted into it is found."""

import ctypes
import dataclasses
import itertools
import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from parkway import verify
from parkway.backends.cpu import build, library, recorder
from parkway.config import EngineSettings
from parkway.engine.choosing import Choosing
from parkway.memory.copy_engine import CopyEngine
from parkway.plan import parking, room, slot
from parkway.plan.copies import Copy
from parkway.plan.planner import Planner
from parkway.plan.prefix import chain
from parkway.plan.step import PAGE_TOKENS, Chunk, StepPlan
from parkway.request import Request
from parkway.runner.cpu_runner import CpuRunner
from parkway.runner.edits import Editor, Edits
from parkway.verify.configurations import AXES
from tests.checkpoints import tiny_llama

CPU = EngineSettings(device="cpu")
HERE = Path(__file__).parent
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny") / "f32.gguf", types=("F32",))


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("planted") / "planted.so"
    command = ["g++", "-O2", "-shared", "-fPIC", "-ffp-contract=off", f"-I{build.SOURCES}", str(HERE / "planted.cpp")]
    subprocess.run([*command, "-o", str(path)], check=True)
    return ctypes.CDLL(str(path))


def told(capsys: Capture) -> tuple[str, dict[str, Any]]:
    """What was printed before the last line, and the last line."""
    text, _, line = capsys.readouterr().out.rstrip("\n").rpartition("\n")
    return text, json.loads(line)


def test_the_default_model_is_exact(smollm2: Path, capsys: Capture) -> None:
    assert verify.run(smollm2, "quick", 0, CPU) == 0
    text, line = told(capsys)
    assert line["differing"] == 0
    assert line["configurations"] >= 20
    assert line["compared_steps"] > 1000
    assert line["parks"] > line["prompt_parks"] > 0
    assert line["restores"] > 0
    assert line["recomputes"] > 0
    assert line["cached_tokens"] > 500
    assert line["missed"] == 0
    assert line.keys() >= {"mode", "seed", "chats", "seconds", "machine", "versions", "fingerprint"}
    assert "differs" not in text


def test_the_same_seed_tries_the_same(tiny: Path, capsys: Capture) -> None:
    def run(seed: int) -> tuple[str, dict[str, Any]]:
        verify.run(tiny, "quick", seed, CPU)
        text, line = told(capsys)
        return text, line | {"seconds": 0}

    assert run(5) == run(5)
    assert run(5)[0] != run(6)[0]


def plant_linear(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    own = library.kernel
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    monkeypatch.setattr(recorder, "kernel", lambda isa, name: address if name == "linear_f32_F32" else own(isa, name))


def test_a_linear_whose_order_of_sums_depends_on_the_row_count_is_found(
    tiny: Path, planted: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    plant_linear(monkeypatch, planted.by_row_count)
    assert verify.run(tiny, "quick", 0, CPU) == 1
    text, line = told(capsys)
    assert line["differing"] > 0
    value = r"token \d+ at -?[\d.e+-]+ \(0x[0-9a-f]{8}\)"
    where = r"Configuration \d+ \(beside \d+, chunk \w+, .*\): the \w+ chat of \d+ prompt tokens differs"
    assert re.search(rf"{where}\n  first at \w+ token \d+\n  alone {value}.*\n  here  {value}", text)


def test_a_planted_linear_with_one_order_is_not_found(
    tiny: Path, planted: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_linear(monkeypatch, planted.always_falling)
    assert verify.run(tiny, "quick", 0, CPU) == 0


def test_a_sampler_that_counts_its_draws_is_found(tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    own = CpuRunner._sampled
    draws = itertools.count()

    def sampled(runner: CpuRunner, chunk: Chunk) -> library.Sample:
        orders = own(runner, chunk)
        orders.seed += next(draws)
        return orders

    monkeypatch.setattr(CpuRunner, "_sampled", sampled)
    assert verify.run(tiny, "quick", 0, CPU) == 1
    text, _ = told(capsys)
    assert "sampled chat" in text
    assert "greedy chat" not in text


def edits_of_a_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    own = CpuRunner.launch

    def launch(runner: CpuRunner, plan: StepPlan, edits: Mapping[int, Edits]) -> None:
        own(runner, plan, dict(zip(edits, reversed(list(edits.values())), strict=True)))

    monkeypatch.setattr(CpuRunner, "launch", launch)


def histories_of_what_was_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They lack what was found in the cache, and have twice what was computed again."""
    histories: dict[int, tuple[Request, list[int]]] = {}

    def edits(choosing: Choosing, plan: StepPlan, planner: Planner) -> dict[int, Edits]:
        made = {}
        for chunk in plan.chunks:
            _, history = histories.setdefault(id(chunk.request), (chunk.request, []))
            history += chunk.tokens
            found = Editor(chunk.request, choosing._vocab_size).edits(history, len(history), None)
            if chunk.samples and found:
                made[chunk.slot] = found
        return made

    monkeypatch.setattr(Choosing, "edits", edits)


@pytest.mark.parametrize("plant", [edits_of_a_neighbour, histories_of_what_was_computed])
def test_edits_that_are_not_the_chats_own_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    plant(monkeypatch)
    assert verify.run(tiny, "quick", 0, CPU) == 1
    text, _ = told(capsys)
    assert "sampled chat" in text
    assert "greedy chat" not in text


def test_a_page_that_two_chats_write_is_found(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = CpuRunner.launch

    def launch(runner: CpuRunner, plan: StepPlan, edits: Mapping[int, Edits]) -> None:
        own(runner, StepPlan(tuple(map(with_shared_page, plan.chunks))), edits)

    def with_shared_page(chunk: Chunk) -> Chunk:
        return replace(chunk, pages=(*chunk.pages[:-1], 0))

    monkeypatch.setattr(CpuRunner, "launch", launch)
    assert verify.run(tiny, "quick", 0, CPU) == 1


def names_that_ignore_what_is_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot, "chain", lambda _, tokens: chain(b"", tokens))


def names_that_tell_only_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def where(before: bytes, tokens: Sequence[int]) -> bytes:
        page = before[0] + 1 if before else 0
        return bytes([page]) + chain(b"", tokens)

    monkeypatch.setattr(slot, "chain", where)


def tables_that_take_only_pages_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough while every chat computes all of its pages itself; those that were found are another chat's here."""
    own = CpuRunner._place

    def place(runner: CpuRunner, chunk: Chunk, row: int) -> int:
        first = chunk.start // PAGE_TOKENS
        known = tuple(map(int, runner._tables[chunk.slot, :first]))
        return own(runner, replace(chunk, pages=known + chunk.pages[first:]), row)

    monkeypatch.setattr(CpuRunner, "_place", place)


@pytest.mark.parametrize(
    "plant",
    [
        names_that_ignore_what_is_before,
        names_that_tell_only_where,
        tables_that_take_only_pages_to_write,
    ],
)
def test_a_page_that_is_not_the_chats_own_beginning_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    plant(monkeypatch)
    assert verify.run(tiny, "quick", 0, CPU) == 1
    _, line = told(capsys)
    assert line["cached_tokens"] > 0
    monkeypatch.setitem(AXES, "cpu", dataclasses.replace(AXES["cpu"], prefix=("cold",), park_every=(0,)))
    assert verify.run(tiny, "quick", 0, CPU) == 0
    _, line = told(capsys)
    assert line["cached_tokens"] == 0


def restores_that_leave_a_page_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def left_out(copy: Copy) -> Copy:
        return replace(copy, sources=copy.sources[:-1], targets=copy.targets[:-1]) if copy.from_host else copy

    plant_copies(monkeypatch, left_out)


def parks_that_swap_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each goes to a host page of the chat, but not to its own."""

    def swapped(copy: Copy) -> Copy:
        return replace(copy, targets=copy.targets[::-1]) if copy.to_host else copy

    plant_copies(monkeypatch, swapped)


def plant_copies(monkeypatch: pytest.MonkeyPatch, plant: Callable[[Copy], Copy]) -> None:
    own = CopyEngine.submit
    monkeypatch.setattr(CopyEngine, "submit", lambda engine, copy: own(engine, plant(copy)))


def replays_that_are_a_token_short(monkeypatch: pytest.MonkeyPatch) -> None:
    own = slot.Slot.enter

    def enter(chat: slot.Slot, pages: tuple[int, ...], now: float) -> None:
        own(chat, pages, now)
        chat.computed += chat.replayed > 0

    monkeypatch.setattr(slot.Slot, "enter", enter)


@pytest.mark.parametrize(
    "plant", [restores_that_leave_a_page_out, parks_that_swap_pages, replays_that_are_a_token_short]
)
def test_a_chat_that_comes_back_as_another_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    plant(monkeypatch)
    assert verify.run(tiny, "quick", 0, CPU) == 1
    _, line = told(capsys)
    assert line["differing"] > 0
    assert line["missed"] == 0
    monkeypatch.setitem(AXES, "cpu", dataclasses.replace(AXES["cpu"], park_every=(0,)))
    assert verify.run(tiny, "quick", 0, CPU) == 0
    _, line = told(capsys)
    assert line["parks"] == 0


def parks_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.Room, "_park_on_purpose", lambda _: None)


def parks_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking.Parking, "leave", lambda *_: False)


def turns_that_nobody_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.Room, "_take_turns", lambda _: None)


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (parks_that_are_forgotten, "was parked 0 times, not 2"),
        (parks_without_a_copy, "no chat came back from the host; chats were computed again"),
        (turns_that_nobody_takes, "No chat was parked in its prompt"),
    ],
)
def test_what_is_not_tried_is_not_proved(
    plant: Callable[[pytest.MonkeyPatch], None],
    says: str,
    tiny: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    plant(monkeypatch)
    assert verify.run(tiny, "quick", 0, CPU) == 1
    text, line = told(capsys)
    assert (line["differing"], line["missed"] > 0) == (0, True)
    assert says in text
