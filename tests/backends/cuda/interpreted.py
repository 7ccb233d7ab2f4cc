"""Triton's interpreter, mended: run-time loop bounds under NumPy 2.4, a matrix unit that takes bf16, rounding to bf16.

The mended unit adds products one by one in ascending k, in fp32. So under the interpreter, too, the bits of an output
depend on the order of its sum and not on the tile it lies in, and tests of order mean something.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton.language as tl
from triton.runtime import interpreter

_cast = interpreter.InterpreterBuilder.cast_impl
_patch = interpreter._patch_lang_tensor
_patch_language = interpreter._patch_lang
_LANGUAGE = type("Language", (), {"__globals__": {"tl": tl, "core": tl.core}})


def mend() -> None:
    """Replaces what is wrong. Call it before the first kernel runs."""
    interpreter.InterpreterBuilder.create_dot = _dot
    interpreter.InterpreterBuilder.cast_impl = _rounding_cast
    interpreter._patch_lang_tensor = _patch_and_mend
    # Functions that a kernel calls find the language patched already: that is half of the interpreter's time.
    interpreter._patch_lang = lambda _: _patch_language(_LANGUAGE)
    interpreter.InterpretedFunction.__call__ = lambda self, *values, **named: self.rewrite()(*values, **named)


def _patch_and_mend(tensor: Any, scope: Any) -> None:
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def _rounding_cast(self: Any, value: Any, wanted: Any) -> Any:
    """To bf16 with rounding to nearest even; from bf16 exactly."""
    kinds = value.dtype.scalar, wanted.scalar
    if kinds == (tl.bfloat16, tl.float32):
        return interpreter.TensorHandle(_floats(value), tl.float32)
    if kinds == (tl.float32, tl.bfloat16):
        rounded = torch.from_numpy(np.ascontiguousarray(value.data)).to(torch.bfloat16).view(torch.int16)
        return interpreter.TensorHandle(rounded.numpy().view(np.uint16), tl.bfloat16)
    return _cast(self, value, wanted)


def _dot(self: Any, a: Any, b: Any, total: Any, *precision: Any) -> Any:
    left, right = _floats(a), _floats(b)
    sums = total.data.astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        for k in range(left.shape[1]):
            sums = sums + left[:, k : k + 1] * right[k : k + 1]
    return interpreter.TensorHandle(sums, total.dtype.scalar)


def _floats(tile: Any) -> npt.NDArray[np.float32]:
    if tile.dtype.scalar == tl.bfloat16:  # kept as the upper half of an fp32
        widened: npt.NDArray[np.float32] = (tile.data.astype(np.uint32) << 16).view(np.float32)
        return widened
    floats: npt.NDArray[np.float32] = tile.data.astype(np.float32)
    return floats
