"""What becomes of a tile of sums in the kernel with bulk loads: the product of two, what is added, where it goes."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def halves(x):
    """The left and the right half of a tile's columns."""
    HALF: gl.constexpr = x.shape[1] // 2
    return x.reshape([x.shape[0], 2, HALF]).permute([0, 2, 1]).split()


@gluon.jit
def product(KIND: gl.constexpr, gate, up):
    """What `linear_plain.product` computes, in the same order."""
    if KIND == 1:
        made = gate / (1.0 + gl.exp(-gate)) * up
    elif KIND == 2:
        made = gate / (1.0 + gl.exp(-(gate * 1.5957691216057308) * (gate * 0.044715 * gate + 1.0))) * up
    else:
        gate = gl.minimum(gate, 7.0)
        up = gl.minimum(gl.maximum(up, -7.0), 7.0) + 1.0
        made = gate / (1.0 + gl.exp(-(gate * 1.702))) * up
    return made


@gluon.jit
def terms(
    addends, extent, row, output, ROWS: gl.constexpr, WIDTH: gl.constexpr, LAYOUT: gl.constexpr,
    BIAS: gl.constexpr, RESIDUAL: gl.constexpr,
):  # fmt: skip
    """What is added to a tile of sums, in this order; zeros in place of what is not there."""
    bias, residual, residual_stride = addends
    rows, outputs = extent
    at_output = output + gl.arange(0, WIDTH, gl.SliceLayout(0, LAYOUT))
    at_row = row + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    first = gl.zeros([WIDTH], gl.float32, gl.SliceLayout(0, LAYOUT))
    second = gl.zeros([ROWS, WIDTH], gl.float32, LAYOUT)
    if BIAS:
        first = gl.load(bias + at_output, mask=at_output < outputs, other=0.0).to(gl.float32)
    if RESIDUAL:
        residual_at = residual + at_row.to(gl.int64)[:, None] * residual_stride + at_output[None, :]
        inside = (at_row < rows)[:, None] & (at_output < outputs)[None, :]
        second = gl.load(residual_at, mask=inside, other=0.0).to(gl.float32)
    return first, second


@gluon.jit
def store(y, extent, total, first, second, row, output, BIAS: gl.constexpr, RESIDUAL: gl.constexpr):
    """total + first + second → y."""
    rows, outputs = extent
    if BIAS:
        total += first[None, :]
    if RESIDUAL:
        total += second
    at_row = row + gl.arange(0, total.shape[0], gl.SliceLayout(1, total.type.layout))
    at_output = output + gl.arange(0, total.shape[1], gl.SliceLayout(0, total.type.layout))
    inside = (at_row < rows)[:, None] & (at_output < outputs)[None, :]
    y_at = y + at_row.to(gl.int64)[:, None] * outputs + at_output[None, :]
    gl.store(y_at, total.to(y.dtype.element_ty), mask=inside)


@gluon.jit
def store_coalesced(y, addends, extent, total, row, output, BIAS: gl.constexpr, RESIDUAL: gl.constexpr):
    """The same by way of shared memory, in pieces of 64 outputs, so that a warp reads and writes whole lines."""
    ROWS: gl.constexpr = total.shape[0]
    WIDTH: gl.constexpr = total.shape[1]
    if WIDTH > 64:
        left, right = halves(total)
        store_coalesced(y, addends, extent, left, row, output, BIAS, RESIDUAL)
        store_coalesced(y, addends, extent, right, row, output + WIDTH // 2, BIAS, RESIDUAL)
    else:
        LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [256 // WIDTH, WIDTH // 8], [4, 1], [1, 0])
        total = gl.convert_layout(total, LAYOUT)
        first, second = terms(addends, extent, row, output, ROWS, WIDTH, LAYOUT, BIAS, RESIDUAL)
        store(y, extent, total, first, second, row, output, BIAS, RESIDUAL)
