"""Products of quantized arrays as products of signed bytes, summed in 32 bits.

``(a - za)(b - zb) = a b - za * sums of b - zb * sums of (a - za)``, so a lane of the processor
multiplies several bytes at once (``ir/lane_dots``). Codes without a sign have the highest bit
flipped, and zero points of 128 vanish with it. In a convolution the sums of ``a - za`` are those of
windows, over all channels: once for all results' channels. With several groups, whose bytes no
instruction multiplies, a zero point of the weights that remains is subtracted first, in 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from .....dtypes import f32, s8, s32, u8
from ....lax import linear, reductions, shaping
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator
from ..convolution import with_bias
from ..windows import window
from .linear import along, is_zero, quantized

FLIP = 128
"""What separates an unsigned code from the signed one of the same rank."""


def signed(x: Term, zero: Term | None) -> tuple[Term, Term | None]:
    """Codes of 8 bits as s8 of the same order, and their zero point as s32; None if that is 0."""
    shift = shaping.full(x.site, 0, s32) if zero is None else zero.to(s32)
    if x.dtype == s8:
        return x, None if is_zero(zero) else shift
    codes = x.do("xor", FLIP).to(s8, "bitcast-convert")
    return codes, None if is_zero(zero, FLIP) else shift - FLIP


def _column(zero: Term, rank: int) -> Term:
    """The zero points of the rows of a matrix, one for each where there are several."""
    if zero.shape.size == 1:
        return shaping.reshape(zero, ())
    return shaping.expand_dims(zero, [-1]) if zero.rank == 1 and rank > 1 else zero


def _row(zero: Term) -> Term:
    """The zero points of the columns of a matrix, one for each where there are several."""
    return shaping.reshape(zero, ()) if zero.shape.size == 1 else zero


def matmul_integer(a: Term, b: Term, za: Term | None, zb: Term | None) -> Term:
    """``(a - za)(b - zb)`` of matrices, batches of them, or vectors, in s32."""
    a8, shift_a = signed(a, za)
    b8, shift_b = signed(b, zb)
    total = linear.matmul(a8, b8, s32)
    if shift_a is not None:
        shift_a = _column(shift_a, a.rank)
        sums = reductions.sum_(
            b8.to(s32), [-2 if b.rank > 1 else 0], keep=b.rank > 1 and a.rank > 1
        )
        total = total - shift_a * sums
    if shift_b is not None:
        left = a8.to(s32) if shift_a is None else a8.to(s32) - shift_a
        sums = reductions.sum_(left, [-1], keep=b.rank > 1 and a.rank > 1)
        total = total - sums * _row(shift_b)
    return total


def conv_integer(
    x: Term,
    w: Term,
    zx: Term | None,
    zw: Term | None,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilations: Sequence[int],
    groups: int,
) -> Term:
    """A convolution of ``x - zx``, padded with zeros, and ``w - zw``, in s32."""
    x8, shift_x = signed(x, zx)
    w8, shift_w = signed(w, zw)
    none = [(0, 0)] * len(padding)
    low, high = ([0, 0, *side] for side in zip(*padding, strict=True))
    if shift_w is not None and groups > 1:
        left = x.to(s32) - (0 if zx is None else shaping.reshape(zx.to(s32), ()))
        right = w.to(s32) - (0 if zw is None else along(zw.to(s32), w, 0, 0))
        return linear.conv(left, right, strides, padding, rhs_dilation=dilations, groups=groups)
    zero = shaping.full(x.site, 0, s32) if shift_x is None else shaping.reshape(shift_x, ())
    filler = zero.to(s8)
    inner = shaping.pad(x8, filler, low, high)
    total = linear.conv(inner, w8, strides, none, rhs_dilation=dilations, groups=groups, dtype=s32)
    if shift_x is not None:
        total = total - zero * _channels(reductions.sum_(w8.to(s32), range(1, w.rank)), w.rank)
    if shift_w is None:
        return total
    sums = reductions.sum_(x8.to(s32) - zero, [1], keep=True)
    size, steps, apart = ([1, 1, *side] for side in (w.dims[2:], strides, dilations))
    edges = [(0, 0), (0, 0), *padding]
    windows = reductions.reduce_window(sums, "add", size, steps, edges, apart)
    return total - windows * _channels(shift_w, w.rank)


def _channels(x: Term, rank: int) -> Term:
    """One number, or one for each channel of a convolution's result of a rank."""
    return shaping.reshape(x, (1, x.shape.size, *[1] * (rank - 2)))


def _convolved(node: Node, x: Term, w: Term, zx: Term | None, zw: Term | None) -> Term:
    """``conv_integer`` by the node's window."""
    shape = window(node, x, w.dims[2:])
    groups = node.int_("group", 1)
    return conv_integer(x, w, zx, zw, shape.strides, shape.pads, shape.dilations, groups)


@operator("ConvInteger", since=10)
def conv_integer_node(node: Node) -> Term:
    """The zero point of the weights is a scalar, or one for each output channel."""
    return _convolved(node, node.input(0), node.input(1), node.optional(2), node.optional(3))


@operator("QLinearConv", since=10)
@operator("QLinearConv", domain="com.microsoft")
def qlinear_conv(node: Node) -> Term:
    """The convolution of dequantized arrays with an s32 bias, quantized again; rounded once.

    ``channels_last`` says where ONNX Runtime's own has the data's channels.
    """
    x, x_scale, zx, w, w_scale, zw, y_scale, zy = (node.input(n) for n in range(8))
    last = bool(node.int_("channels_last", 0))
    x = shaping.move_axis(x, -1, 1) if last else x
    total = _convolved(node, x, w, zx, zw)
    total = with_bias(total, node.optional(8))
    scale = shaping.reshape(x_scale, ()) * along(w_scale, w, 0, 0) / shaping.reshape(y_scale, ())
    if scale.rank:
        scale = shaping.reshape(scale, (w.dims[0], *[1] * (w.rank - 2)))
    found = quantized(total.to(f32) * scale, shaping.reshape(zy, ()), zy.dtype)
    return shaping.move_axis(found, 1, -1) if last else found


@operator("MatMulInteger", since=10, sized=True)
def matmul_integer_node(node: Node) -> Term:
    """Zero points are scalars, or one for each row of the left and column of the right operand."""
    return matmul_integer(node.input(0), node.input(1), node.optional(2), node.optional(3))


@operator("QLinearMatMul", since=10, sized=True)
def qlinear_matmul(node: Node) -> Term:
    """The product of dequantized matrices, quantized again; rounded once."""
    a, a_scale, za, b, b_scale, zb, y_scale, zy = node.arrays()
    if any(t.dtype not in (s8, u8) for t in (a, b, zy)):
        node.unsupported(f"it multiplies {a.dtype} and {b.dtype}", "s8 and u8 are supported")
    total = matmul_integer(a, b, za, zb)
    scale = _column(a_scale.to(f32), a.rank) * _row(b_scale.to(f32)) / _row(y_scale.to(f32))
    return quantized(total.to(f32) * scale, _column(zy, total.rank), zy.dtype)
