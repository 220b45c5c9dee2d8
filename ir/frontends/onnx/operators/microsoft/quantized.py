"""Quantized operators of ONNX Runtime: dequantized, computed and quantized; products of codes."""

from __future__ import annotations

from collections.abc import Callable

from .....dtypes import f32, s8, s16, s32, u8, u16, u32
from ....lax import functions, indexing, linear, reductions, shaping
from ....lax.recurrent import Weight
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator
from ..pooling import averaged, largest
from ..quantized.integers import matmul_integer
from ..quantized.linear import along, dynamic_range, quantized
from ..recurrent import KINDS, Weights, at, layer
from .domain import DOMAIN


def plain(node: Node, n: int) -> Term:
    """The f32 array of codes, scale and zero point, inputs ``n`` to ``n + 2``."""
    codes, scale = node.input(n), shaping.reshape(node.input(n + 1), ())
    wide = codes.to(f32)
    zero = node.optional(n + 2)
    return (wide if zero is None else wide - shaping.reshape(zero, ()).to(f32)) * scale


def coded(node: Node, x: Term, n: int, like: Term) -> Term:
    """Codes of an f32 array with the scale and zero point of inputs ``n`` and ``n + 1``."""
    zero = node.optional(n + 1)
    shift = None if zero is None else shaping.reshape(zero, ())
    scaled = x / shaping.reshape(node.input(n), ())
    return quantized(scaled, shift, like.dtype if zero is None else zero.dtype)


@operator("QLinearAdd", domain=DOMAIN)
def qlinear_add(node: Node) -> Term:
    """The sum."""
    return coded(node, plain(node, 0) + plain(node, 3), 6, node.input(0))


@operator("QLinearMul", domain=DOMAIN)
def qlinear_mul(node: Node) -> Term:
    """The product, element by element."""
    return coded(node, plain(node, 0) * plain(node, 3), 6, node.input(0))


def _softmax(node: Node, x: Term) -> Term:
    axis = node.axis("axis", x.rank, -1)
    whole = node.int_("opset", 13) < 13
    return functions.softmax(x, range(axis, x.rank) if whole else [axis])


def _global_mean(node: Node, x: Term) -> Term:
    last = bool(node.int_("channels_last", 0))
    axes = range(1, x.rank - 1) if last else range(2, x.rank)
    return functions.mean(x, axes, keep=True)


def _mean(node: Node, x: Term) -> Term:
    if not node.int_("channels_last", 0):
        return averaged(node, x)
    return shaping.move_axis(averaged(node, shaping.move_axis(x, -1, 1)), 1, -1)


UNARY: dict[str, Callable[[Node, Term], Term]] = {
    "QLinearSigmoid": lambda node, x: functions.sigmoid(x),
    "QLinearLeakyRelu": lambda node, x: functions.leaky_relu(x, node.float_("alpha", 0.01)),
    "QLinearSoftmax": _softmax,
    "QLinearGlobalAveragePool": _global_mean,
    "QLinearAveragePool": _mean,
}
"""By operator: what is computed on the dequantized array."""


@operator(*UNARY, domain=DOMAIN)
def qlinear_unary(node: Node) -> Term:
    """A function of one array; inputs 3 and 4 are the result's scale and zero point."""
    return coded(node, UNARY[node.op](node, plain(node, 0)), 3, node.input(0))


@operator("NhwcMaxPool", domain=DOMAIN)
def nhwc_max_pool(node: Node) -> Term:
    """The largest element of every window of codes, whose channels are last."""
    channels_first = shaping.move_axis(node.input(0), -1, 1)
    return shaping.move_axis(largest(node, channels_first), 1, -1)


@operator("QLinearConcat", domain=DOMAIN)
def qlinear_concat(node: Node) -> Term:
    """Arrays of several scales, one after the other, with one scale."""
    count = (len(node.inputs) - 2) // 3
    parts = [coded(node, plain(node, 2 + 3 * k), 0, node.input(2)) for k in range(count)]
    return shaping.concatenate(parts, node.axis("axis", parts[0].rank))


@operator("QLinearWhere", domain=DOMAIN)
def qlinear_where(node: Node) -> Term:
    """The elements of one of two arrays."""
    return coded(node, node.input(0).select(plain(node, 1), plain(node, 4)), 7, node.input(1))


def _columns(x: Term) -> Term:
    """A scale: one, or one for each column."""
    return shaping.reshape(x, ()) if x.shape.size == 1 else x


def product(
    a: Term, b: Term, scales: tuple[Term, Term], zeros: tuple[Term | None, Term | None]
) -> Term:
    """The f32 product of codes."""
    return matmul_integer(a, b, *zeros).to(f32) * (_columns(scales[0]) * _columns(scales[1]))


@operator("MatMulInteger16", domain=DOMAIN)
def matmul_integer_16(node: Node) -> Term:
    """The product of matrices of 16-bit integers, in 32 bits."""
    a, b = node.input(0), node.input(1)
    if {a.dtype, b.dtype} - {s16, u16}:
        node.malformed(f"it takes integers of 16 bits, not {a.dtype} and {b.dtype}")
    wide = u32 if {a.dtype, b.dtype} == {u16} else s32
    return linear.matmul(a.to(wide), b.to(wide))


@operator("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(node: Node) -> Term:
    """The product of dequantized matrices, and a bias."""
    a, b, a_scale, b_scale = (node.input(n) for n in range(4))
    found = product(a, b, (a_scale, b_scale), (node.optional(4), node.optional(5)))
    bias = node.optional(6)
    return found if bias is None else found + bias


def _dynamic_product(a: Term, b: Term, b_scale: Term, b_zero: Term | None) -> Term:
    """``a b`` of an f32 matrix, quantized by its own range, and a quantized one."""
    scale, zero = dynamic_range(a)
    codes = quantized(a / scale.equals(0).select(1, scale), zero, u8)
    total = matmul_integer(codes, b, zero, b_zero)
    return total.to(f32) * (scale * _columns(b_scale))


@operator("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(node: Node) -> Term:
    """The product of a matrix quantized by its own range and a quantized one, and a bias."""
    found = _dynamic_product(node.input(0), node.input(1), node.input(2), node.optional(3))
    bias = node.optional(4)
    return found if bias is None else found + bias


@operator("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_quantize_lstm(node: Node) -> tuple[Term, ...]:
    """LSTM of quantized weights ``[direction, n, 4 hidden]``.

    The inputs of all steps are quantized by their range, and so is the state in each step.
    """
    directions, hidden, _ = node.input(2).dims

    def weight(n: int, k: int) -> Weight:
        given = (node.input(n), node.input(6 + 2 * n), node.input(7 + 2 * n))
        codes, scale, zero = (at(part, k) for part in given)
        return lambda x: _dynamic_product(x, codes, scale, zero)

    return layer(node, KINDS["LSTM"], Weights(directions, hidden, weight))


@operator("QGemm", domain=DOMAIN)
def qgemm(node: Node) -> Term:
    """``alpha A B + C`` of dequantized matrices; f32, or quantized if it has a scale for that."""
    a, b, c = node.input(0), node.input(3), node.optional(6)
    a = shaping.transpose(a, (1, 0)) if node.int_("transA", 0) else a
    b = shaping.transpose(b, (1, 0)) if node.int_("transB", 0) else b
    total = matmul_integer(a, b, node.optional(2), node.optional(5))
    if c is not None:
        total = total + c
    scale = _columns(node.input(1)) * _columns(node.input(4)) * node.float_("alpha", 1.0)
    found = total.to(f32) * scale
    return coded(node, found, 7, a) if node.has(7) else found


def unpacked(codes: Term, bits: int) -> Term:
    """Bytes as their parts of so many bits, the lowest first, along the last dimension; u8."""
    mask = (1 << bits) - 1
    parts = [codes.do("shift-right-logical", k).do("and", mask) for k in range(0, 8, bits)]
    return shaping.reshape(shaping.stack(parts, codes.rank), (*codes.dims[:-1], -1))


BYTES = 4
"""The accuracy level with which rows are codes of 8 bits as well."""


def in_bytes(x: Term, blocks: int, block: int) -> Term:
    """Rows rounded to codes of 8 bits, the largest of each block exact; ``x`` if it is not f32."""
    if x.dtype != f32:
        return x
    *rows, terms = x.dims
    short = blocks * block - terms
    filled = shaping.pad(x, 0.0, [0] * x.rank, [*(0 for _ in rows), short])
    apart = shaping.reshape(filled, (*rows, blocks, block))
    top = reductions.max_(apart.do("abs"), [-1], keep=True)
    factor = top.equals(0.0).select(0.0, 127.0 / top)
    codes = quantized(apart * factor, None, s8)
    rounded = shaping.reshape(codes.to(f32) * (top / 127.0), (*rows, blocks * block))
    return shaping.slice_in_dim(rounded, 0, terms, -1)


@operator("MatMulNBits", domain=DOMAIN)
def matmul_n_bits(node: Node) -> Term:
    """The product with weights ``[n, blocks, bytes]`` of 2, 4 or 8 bits, a scale for each block."""
    a, codes, scales, zeros = node.input(0), node.input(1), node.input(2), node.optional(3)
    node.leave_out(weight_prepacked=0)
    k, n = node.int_("K"), node.int_("N")
    bits, block = node.int_("bits", 4), node.int_("block_size")
    if node.has(4) or bits not in (2, 4, 8):
        node.unsupported(
            "it orders groups by `g_idx`" if node.has(4) else f"weights of {bits} bits"
        )
    blocks = -(-k // block)
    wide = shaping.reshape(unpacked(codes, bits), (n, blocks, block))
    if zeros is None:
        shift = shaping.full(a.site, 1 << (bits - 1), f32)
    elif zeros.dtype == u8:
        found = unpacked(shaping.reshape(zeros, (n, -1)), bits)
        shift = shaping.expand_dims(shaping.slice_in_dim(found, 0, blocks, 1).to(f32), [2])
    else:
        shift = shaping.reshape(zeros.to(f32), (n, blocks, 1))
    whole = (wide.to(f32) - shift) * shaping.reshape(scales.to(f32), (n, blocks, 1))
    weights = shaping.slice_in_dim(shaping.reshape(whole, (n, blocks * block)), 0, k, 1)
    if node.int_("accuracy_level", 0) == BYTES:
        a = in_bytes(a, blocks, block)
    made = linear.matmul(a, shaping.transpose(weights.to(a.dtype), (1, 0)))
    bias = node.optional(5)
    return made if bias is None else made + bias


@operator("GatherBlockQuantized", domain=DOMAIN)
def gather_block_quantized(node: Node) -> Term:
    """Rows of a dequantized table, which has a scale for each block of ``quantize_axis``."""
    table, scales, zeros = node.input(0), node.input(2), node.optional(3)
    bits, block = node.int_("bits", 4), node.int_("block_size", 128)
    axis, blocked = (
        node.axis("gather_axis", table.rank, 0),
        node.axis("quantize_axis", table.rank, 1),
    )
    packed = table.dtype == u8 and bits < 8
    if packed and (blocked != table.rank - 1 or axis == blocked):
        node.unsupported("bytes of several codes are not along a last axis of their own")
    at = indexing.wrap(node.input(1), table.dims[axis])

    def rows(codes: Term, size: int) -> Term:
        found = indexing.take(codes, at, axis)
        if packed:
            found = shaping.slice_in_dim(unpacked(found, bits), 0, size, -1)
        return found.to(f32)

    wide = rows(table, table.dims[-1] * 8 // bits)
    blocked += at.rank - 1 if blocked > axis else 0
    if zeros is not None:
        wide = wide - along(rows(zeros, scales.dims[-1]), wide, blocked, block)
    elif table.dtype == u8:
        wide = wide - (1 << (bits - 1))
    scale = indexing.take(scales, at, axis)
    return (wide * along(scale.to(f32), wide, blocked, block)).to(scales.dtype)
