"""Comparisons, logic, bits and bytes, and what else is decided element by element."""

from __future__ import annotations

import math

from ....dtypes import BY_NAME, DType, f32, f64, pred, to_numpy, u8
from ....hlo.nodes import Shape
from ...lax.arithmetic import magnitude, right_shift
from ...lax.control import while_loop
from ...lax.fft import complex_of_pairs, pairs_of_complex
from ...lax.reductions import any_
from ...lax.shaping import broadcast_to, reshape
from ...lax.term import Term
from .call import AtenCall, Operator, Rows, sized
from .promotion import Operand


def _compare(direction: str) -> Operator:
    def write(c: AtenCall, x: Operand, y: Operand) -> Term:
        a, b = c.promoted(x, y)
        return a.do("compare", b, direction=direction)

    return write


def _logical(opcode: str) -> Operator:
    def write(c: AtenCall, x: Operand, y: Operand) -> Term:
        a, b = (truth(c.promoted(v)[0]) for v in (x, y))
        return a.do(opcode, b)

    return write


def truth(x: Term) -> Term:
    """True where an element is not zero."""
    return x if x.dtype.kind == "pred" else x.differs(0)


def _where(c: AtenCall, condition: Term, x: Operand, y: Operand) -> Term:
    a, b = c.operands(x, y)
    return truth(condition).do("select", a, b)


def _bitwise_not(c: AtenCall, x: Term) -> Term:
    return x.do("not")


def _isnan(c: AtenCall, x: Term) -> Term:
    if x.dtype.kind == "complex":
        return x.do("real").differs(x.do("real")) | x.do("imag").differs(x.do("imag"))
    return x.differs(x)


def _isinf(c: AtenCall, x: Term) -> Term:
    parts = [x.do("real"), x.do("imag")] if x.dtype.kind == "complex" else [x]
    if not parts[0].dtype.is_float:
        return x.differs(x)
    found = [p.do("abs").equals(math.inf) for p in parts]
    return found[0] if len(found) == 1 else found[0] | found[1]


def _signbit(c: AtenCall, x: Term) -> Term:
    if not x.dtype.is_float:
        return x < 0 if x.dtype.kind == "signed" else x.differs(x)
    return x.to(BY_NAME[f"s{x.dtype.bits}"], "bitcast-convert") < 0


def _isfinite(c: AtenCall, x: Term) -> Term:
    return x.do("is-finite") if x.dtype.is_float else x.equals(x)


def _right_shift(c: AtenCall, x: Operand, y: Operand) -> Term:
    return right_shift(*c.operands(x, y))


def _gcd(c: AtenCall, x: Operand, y: Operand) -> Term:
    a, b = (magnitude(t) for t in c.operands(x, y))
    a, b = (broadcast_to(t, c.dims) for t in (a, b))

    def step(p: Term, q: Term) -> list[Term]:
        done = q.equals(0)
        return [done.select(p, q), done.select(q, p.do("remainder", done.select(1, q)))]

    return while_loop(lambda p, q: any_(q.differs(0)), step, [a, b])[0]


def _binary(opcode: str) -> Operator:
    def write(c: AtenCall, x: Operand, y: Operand) -> Term:
        a, b = c.operands(x, y)
        return a.do(opcode, b)

    return write


def _nothing(c: AtenCall, *rest: object, **named: object) -> None:
    """An assertion about values, which compiled code does not check."""


ASSERTIONS = (
    "aten._assert_async.default",
    "aten._assert_async.msg",
    "aten._assert_scalar.default",
    "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
)
"""What only checks values, or tells torch about them."""

_COMPARISONS = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}


def _both(name: str, operator: Operator) -> Rows:
    """The overloads of a second operand that is an array or a number."""
    return {f"aten.{name}.{kind}": operator for kind in ("Tensor", "Scalar")}


def _view_dtype(c: AtenCall, x: Term, dtype: DType) -> Term:
    """The same bytes under another type: the last dimension shrinks or grows.

    Truth values are bytes of 0 and 1, complex numbers are pairs of floats.
    """
    return reshape(_typed(_plain(reshape(x, (-1,))), dtype), c.dims)


def _plain(x: Term) -> Term:
    """A vector whose elements have bits: bytes for truth values, floats for complex numbers."""
    if x.dtype.kind == "complex":
        return reshape(pairs_of_complex(x), (-1,))
    return x.to(u8) if x.dtype == pred else x


def _typed(x: Term, dtype: DType) -> Term:
    """The bytes of a vector, which have bits, as elements of any type."""
    if dtype == pred:
        return truth(_typed(x, u8))
    if dtype.kind == "complex":
        pairs = _typed(x, f32 if dtype.bits == 2 * f32.bits else f64)
        return complex_of_pairs(reshape(pairs, (pairs.dims[0] // 2, 2)))
    if dtype == x.dtype:
        return x
    old, new = (to_numpy(d).itemsize for d in (x.dtype, dtype))
    count = x.dims[0] * old // new
    if old < new:
        x = reshape(x, (count, new // old))
    dims = (*x.dims, old // new) if old > new else (count,)
    bits = x.site.add("bitcast-convert", Shape(dtype, dims), [x.value])
    return reshape(Term(x.site, bits), (count,))


ROWS: Rows = {
    **dict.fromkeys(ASSERTIONS, _nothing),
    "aten.gcd.default": _gcd,
    "aten.view.dtype": _view_dtype,
    "prims.view_element_type.default": _view_dtype,
    "prims.gcd.default": _gcd,
    **sized(
        {
            **{k: v for n, d in _COMPARISONS.items() for k, v in _both(n, _compare(d)).items()},
            **{f"prims.{n}.default": _compare(d) for n, d in _COMPARISONS.items()},
            **{f"aten.logical_{n}.default": _logical(n) for n in ("and", "or", "xor")},
            "aten.logical_not.default": lambda c, x: ~truth(x),
            **{
                k: v
                for n in ("and", "or", "xor")
                for k, v in _both(f"bitwise_{n}", _binary(n)).items()
            },
            **{f"aten.bitwise_{n}.Scalar_Tensor": _binary(n) for n in ("and", "or", "xor")},
            **{f"prims.bitwise_{n}.default": _binary(n) for n in ("and", "or", "xor")},
            "aten.bitwise_not.default": _bitwise_not,
            "prims.bitwise_not.default": _bitwise_not,
            "aten.where.self": _where,
            "aten.where.ScalarSelf": _where,
            "aten.where.ScalarOther": _where,
            "aten.where.Scalar": _where,
            "prims.where.default": _where,
            "aten.masked_fill.Scalar": lambda c, x, mask, value: _where(c, mask, value, x),
            "aten.masked_fill.Tensor": lambda c, x, mask, value: _where(c, mask, value, x),
            "aten.isnan.default": _isnan,
            "aten.isinf.default": _isinf,
            "aten.isfinite.default": _isfinite,
            "prims.isfinite.default": _isfinite,
            "aten.signbit.default": _signbit,
            "prims.signbit.default": _signbit,
            "aten.bitwise_left_shift.Tensor": _binary("shift-left"),
            "aten.__lshift__.Scalar": _binary("shift-left"),
            "aten.__lshift__.Tensor": _binary("shift-left"),
            "prims.shift_left.default": _binary("shift-left"),
            "aten.bitwise_right_shift.Tensor": _right_shift,
            "aten.__rshift__.Scalar": _right_shift,
            "aten.__rshift__.Tensor": _right_shift,
            "prims.shift_right_arithmetic.default": _right_shift,
        },
        numbers=True,
    ),
}
