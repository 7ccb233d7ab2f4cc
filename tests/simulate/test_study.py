"""The study: that processes change nothing, what its columns are, and who is compared with whom."""

import subprocess
import sys

import pytest
from rich.console import Console

from simulate.__main__ import table
from simulate.run import Outcome
from simulate.study import DEFAULTS, EVERY_POLICY, STUDY, Cell, Policy, Scene, against_pass, simulated

SMALL = Scene("uniform", chats=6, pool=4096, device="h200")


IN_PROCESSES = f"""
from simulate.study import DEFAULTS, Policy, Scene, study
for cell in study({SMALL!r}, DEFAULTS, seeds=3):
    print(list(cell.outcomes))
"""


def test_processes_bring_what_one_brings() -> None:
    """In a process of its own, because those that make others stay until it ends."""
    done = subprocess.run([sys.executable, "-c", IN_PROCESSES], capture_output=True, text=True, check=True)
    alone = [[simulated(SMALL, policy, seed) for seed in range(3)] for policy in DEFAULTS]
    assert done.stdout.splitlines() == [str(outcomes) for outcomes in alone]


def test_means_over_seeds() -> None:
    seeds = [
        Outcome(seconds=10.0, parked=[1.0, 4.0], starts=[0.0, 2.0], slowdowns=[1.0, 3.0], parks=2, tokens=500),
        Outcome(seconds=20.0, starts=[3.0, 0.0], slowdowns=[1.0, 1.0], parks=1, tokens=1500),
    ]
    cell = Cell(STUDY[0], seeds)
    assert (cell.longest_wait, cell.longest_park) == (3.5, 2.0)
    assert (cell.seconds, cell.latest_start) == (15.0, 2.5)
    assert (cell.parks_per_1000, cell.slowdown) == (1.5, 1.5)


def test_a_policy_is_compared_with_pass_and_nothing_else_changed() -> None:
    cells = [Cell(policy, []) for policy in EVERY_POLICY]
    assert len({cell.policy for cell in cells}) == 20
    for cell in cells:
        other = against_pass(cell, cells).policy
        assert other == Policy("pass", cell.policy.victim, cell.policy.quantum)


def test_the_table_has_the_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [
        Cell(policy, [Outcome(seconds=seconds, parked=[wait], starts=[0.0], slowdowns=[1.0], tokens=1)])
        for policy, seconds, wait in zip(STUDY, (10.0, 10.1), (8.0, 3.0), strict=True)
    ]
    Console(width=200).print(table(SMALL, cells))
    told = capsys.readouterr().out
    assert "0.38" in told
    assert "1.010" in told
