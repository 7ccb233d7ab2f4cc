"""The bit check of row operations passes, and finds rows that depend on others."""

from typing import Any

import pytest
import torch

from parkway.backends import bit_check
from parkway.backends.cuda import rows, rows_subjects
from parkway.backends.cuda.attention_subjects import Shape, need
from parkway.runner.cuda_compile import subjects
from tests.backends.cuda import interpreted

if not torch.cuda.is_available():
    interpreted.mend()

SHAPES = (Shape(6, 2, 48), Shape(4, 1, 32, window=100), Shape(4, 1, 32))


def test_rows_alone_have_the_bits_of_rows_among_others(device: torch.device) -> None:
    made = rows_subjects.subjects(device, 0, SHAPES)
    assert [subject.name for subject in made] == ["norm", "rope and write"] * 2
    verdict = bit_check.check(made, torch.equal)
    assert (verdict.dropped, verdict.comparisons) == ({}, 12)
    for subject in made:
        output = subject.output(subject.candidates[0], slice(0, subject.rows)).view(torch.bfloat16)
        strange = ~torch.isfinite(output).all(dim=1)
        assert strange.nonzero().flatten().tolist() == [rows_subjects.STRANGER]


@pytest.mark.parametrize(("function", "name"), [("rms_norm", "norm"), ("rope_and_write", "rope and write")])
def test_a_row_that_depends_on_how_many_there_are_fails_the_load_by_name(
    device: torch.device, function: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(rows_subjects, function)

    def planted(x: torch.Tensor, *given: Any) -> torch.Tensor:
        made: torch.Tensor = right(x, *given)
        return made if len(x) < 8 else made * 1.01

    monkeypatch.setattr(rows_subjects, function, planted)
    with pytest.raises(bit_check.BitCheckFailed, match=f"no configuration of {name} computes"):
        bit_check.check(rows_subjects.subjects(device, 0, SHAPES), torch.equal)


def test_what_is_written_counts_too(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    right = rows.rope_and_write

    def planted(q: torch.Tensor, k: torch.Tensor, *given: Any) -> torch.Tensor:
        return right(q, k if len(q) < 8 else k + 1, *given)

    monkeypatch.setattr(rows_subjects, "rope_and_write", planted)
    with pytest.raises(bit_check.BitCheckFailed, match="rope and write"):
        bit_check.check(rows_subjects.subjects(device, 0, SHAPES[:1]), torch.equal)


def test_a_load_checks_the_rows_of_its_model(device: torch.device) -> None:
    names = {subject.name for subject in subjects(device, (need(SHAPES[0]),))}
    assert names >= {"norm", "rope and write", "attention"}
