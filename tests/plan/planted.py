"""Whether the machine of test_planner_machine.py finds a bug that was planted for it."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.stateful import run_state_machine_as_test

from .test_planner_machine import CrowdedMachine, Machine

Plant = Callable[[pytest.MonkeyPatch], None]


def machine_finds_it(machine: type[Machine] = CrowdedMachine) -> None:
    """Asserts that a run of the machine fails, always the same run: Hypothesis would draw numbers from the sources of
    all that other tests have imported as well."""
    search = settings(
        max_examples=500,
        stateful_step_count=20,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(providers, "_get_local_constants", Constants)
        with pytest.raises((AssertionError, IndexError)):
            run_state_machine_as_test(machine, settings=search)
