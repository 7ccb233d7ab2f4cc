"""What a figure was measured on, in one line."""

import pytest

from parkway import machine


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("sse2 avx2 avx512f avx512_vnni amx_int8", " (AMX)"),
        ("sse2 avx2 avx512f avx512_vnni", " (AVX-512 VNNI)"),
        ("avx2 avx512f", " (AVX-512)"),
        ("sse2 avx2 fma", " (AVX2)"),
        ("sse2", ""),
    ],
)
def test_processors_of_one_name_are_told_apart(flags: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_cpuinfo", lambda: {"model name": "AMD EPYC", "flags": flags})
    monkeypatch.setattr(machine, "gpu", lambda: None)
    assert machine.machine().startswith(f"AMD EPYC{told}, ")


def test_a_system_that_tells_nothing_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_cpuinfo", dict)
    assert machine.machine()
