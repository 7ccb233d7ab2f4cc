"""Instructions of ptx.h that weights depend on: the GPU's own, or what emulates them."""

import ctypes as C
from fractions import Fraction

import numpy as np
import pytest
import torch

from parkway.backends.cuda import nvrtc
from parkway.backends.cuda.quantised_config import entry
from tests.backends.cuda import emulated

SOURCE = """
struct Fused { const u32 *a, *b, *c; u32 *y; int count; };
DEVICE void fuse(const Fused &p) {
    for (int i = threadIdx.x; i < p.count; i += 32)
        p.y[i] = fma_bf16_pair(p.a[i], p.b[i], p.c[i]);
}
"""
TWICE = """
DEVICE void halve(const Fused &p) { p.y[0] = low_twice(p.a[0]), p.y[1] = high_twice(p.a[0]); }
"""
INFINITY = 0x7F80


class Fused(C.Structure):
    _fields_ = [*[(name, C.c_void_p) for name in "abcy"], ("count", C.c_int32)]


def run(function: str, device: torch.device, *given: torch.Tensor) -> torch.Tensor:
    """What a function of this file makes of up to three tensors of 16 bits; as large as they are."""
    y = torch.empty_like(given[0], device=device)
    there = [each.to(device) for each in given]
    places = [each.data_ptr() for each in there] + [None] * (3 - len(given))
    arguments = Fused(*places, y.data_ptr(), len(y) // 2)
    compiled = nvrtc.kernel if device.type == "cuda" else emulated.kernel
    compiled("ptx.h", SOURCE + TWICE + entry("Fused", function, 32)).launch((1, 1), 32, 0, arguments, pdl=False)
    return y.cpu()


def fused(device: torch.device, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a * b + c of bits of bf16, int16."""
    return run("fuse", device, a, b, c)


def rounded(exact: Fraction) -> int:
    """The nearest bf16's bits, ties to even; a zero is positive."""
    size = abs(exact)
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length(), -126)
    exponent -= exponent > -126 and Fraction(2) ** exponent > size
    found = min((exponent + 126) * 128 + round(size / Fraction(2) ** (exponent - 7)), INFINITY)
    return found | (exact < 0) << 15


def drawn(count: int) -> list[torch.Tensor]:
    """Three times so many bits of finite numbers, the third near the product of the others, or anywhere."""
    chance = np.random.default_rng(0)
    a, b, c = chance.integers(0, INFINITY, (3, count), np.uint16) | chance.integers(0, 2, (3, count), np.uint16) << 15
    a[: count // 4] &= 0x80FF  # subnormal and the least normal ones
    products = np.prod([torch.from_numpy(each.view(np.int16)).view(torch.bfloat16).double() for each in (a, b)], axis=0)
    exponents = np.clip(np.frexp(products)[1] + chance.integers(-17, 18, count), -133, 127) + 126
    near = slice(None, None, 2)
    c[near] = (c & 0x807F | np.clip(exponents, 0, 254).astype(np.uint16) << 7)[near]
    return [torch.from_numpy(each.view(np.int16)) for each in (a, b, c)]


def test_both_halves_are_rounded_once(device: torch.device) -> None:
    a, b, c = drawn(1 << 14)
    made = [int(each) & 0xFFFF for each in fused(device, a, b, c)]
    numbers = zip(*[each.view(torch.bfloat16).tolist() for each in (a, b, c)], strict=True)
    exact = [Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in numbers]
    expected = [rounded(each) for each in exact]
    assert [bits for bits, value in zip(made, exact, strict=True) if value] == [
        bits for bits, value in zip(expected, exact, strict=True) if value
    ]
    assert sum(bits & 0x7F80 == 0 for bits in expected) > 500
    assert sum(bits & 0x7FFF == INFINITY for bits in expected) > 500


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        (0x000F, 0x7E00, 0xBD00, 0x3CE0),  # 15 * 2^-133 * 2^125 - 2^-5 = 7 * 2^-8
        (0x00F0, 0x7C00, 0xBD00, 0x3CE0),  # the same of 16 times as much
        (0x0008, 0x7E00, 0xBD00, 0x0000),
        (0x0000, 0x7E00, 0xBD00, 0xBD00),
        (0x3F80, 0x3F80, 0x3B80, 0x3F80),  # 1 + 2^-8 is a tie
        (0x3F81, 0x3F80, 0x3B80, 0x3F82),  # 1 + 3 * 2^-8 too
        (0x0001, 0x0001, 0x3F80, 0x3F80),
        (0x3F81, 0x3F81, 0x0001, 0x3F82),  # far below the last bit of a double's sum
        (0x8000, 0x3F80, 0x8000, 0x8000),  # zeros have signs
        (0x8000, 0x3F80, 0x0000, 0x0000),
        (0x0000, 0x7F80, 0x0000, 0x7FFF),
        (0x7F7F, 0x7F7F, 0xFF80, 0xFF80),
    ],
)
def test_single_numbers(device: torch.device, a: int, b: int, c: int, expected: int) -> None:
    pairs = [torch.tensor([0, bits], dtype=torch.int32).to(torch.int16) for bits in (a, b, c)]
    assert int(fused(device, *pairs)[1]) & 0xFFFF == expected


def test_halves_of_a_word_twice(device: torch.device) -> None:
    word = torch.tensor([1, -2, 0, 0], dtype=torch.int16)
    assert run("halve", device, word).tolist() == [1, 1, -2, -2]
