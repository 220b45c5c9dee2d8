"""The one table of element-wise operations, shared by both interpreters and the code generator.

An entry defines an operation: its arity, the kinds of elements it takes, its result type and its
meaning in NumPy. HLO and the loop IR use the same names. The code generator keys its emission table
by these names too, and a test compares the two, so adding an operation is one entry here and one
there.

Integer arithmetic wraps. ``divide`` and ``remainder`` of integers truncate; a division by zero
gives -1 (all ones), a remainder by zero the dividend, and INT_MIN / -1 gives INT_MIN, as XLA
defines them. ``floordiv`` and ``floormod`` round to minus infinity and are for index arithmetic,
with a positive divisor. ``maximum`` and ``minimum`` propagate NaN and order -0 below +0. A shift
by at least the width gives 0 (the sign for ``shift-right-arithmetic``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from . import complex_functions
from .arrays import Array
from .conversion import convert, is_narrow_int
from .dtypes import BY_NAME, DType, is_numpy_dtype, pred, to_numpy

Result: TypeAlias = Literal["same", "pred", "real"]


@dataclass(frozen=True, slots=True)
class ElementwiseOp:
    """An element-wise operation; ``numpy(*args)`` defines its result.

    ``kinds`` are the operand kinds accepted: p(red) s(igned) u(nsigned) f(loat) c(omplex).
    ``result`` is the result's element type: that of the last operand, pred, or that of its real
    part. ``flops`` is the approximate cost of one element in FLOP. ``commutative`` and
    ``associative`` hold up to rounding. ``index_only`` operations exist in the loop IR only.
    ``rounding`` is "rounds" if results are rounded, "commutes" if rounding the operands instead
    gives the same, and "exact" if results are never rounded, although rounding the operands may
    change them. With ``keeps_nan``, a NaN operand gives a NaN result. Random inputs are drawn
    positive if they reach an operation that ``needs_positive`` ones through operations that all
    have ``keeps_positive``. With ``of_bits``, integers of fewer than 8 bits are zero-extended
    rather than sign-extended. The MLIR ``dialects`` have the operation under the same name.
    """

    name: str
    arity: int
    kinds: str
    numpy: Callable[..., Array]
    result: Result = "same"
    flops: float = 1.0
    transcendental: bool = False
    commutative: bool = False
    associative: bool = False
    index_only: bool = False
    rounding: Literal["rounds", "commutes", "exact"] = "rounds"
    keeps_nan: bool = False
    needs_positive: bool = False
    keeps_positive: bool = False
    of_bits: bool = False
    dialects: tuple[str, ...] = ("stablehlo",)

    def result_dtype(self, *args: DType) -> DType:
        """Return the element type of the result for operands of these element types."""
        if self.result == "pred":
            return pred
        if self.result == "real" and args[-1].kind == "complex":
            from .dtypes import f32, f64

            return f32 if args[-1].bits == 64 else f64
        return args[-1]


def _wide(name: str, f: Callable[..., Array]) -> Callable[..., Array]:
    """Wrap ``f`` to compute narrow floats (f16, bf16, f8) in f32 and round once, and narrow
    integers in 8 bits. Complex numbers use ``complex_functions`` where it has the operation."""

    def run(*args: Array) -> Array:
        last = args[-1].dtype
        if last.kind == "c" and name in complex_functions.FUNCTIONS:
            return complex_functions.evaluate(name, args)
        if is_numpy_dtype(last) and last != np.float16:
            return f(*args)
        if is_narrow_int(last):
            return _few_bits(name, f, args)
        wide = (a if a.dtype == np.bool_ else a.astype(np.float32) for a in args)
        result = np.asarray(f(*wide))
        return result if result.dtype == np.bool_ else convert(result, last)

    return run


def _few_bits(name: str, f: Callable[..., Array], args: tuple[Array, ...]) -> Array:
    """Apply an operation to integers of 2 or 4 bits, computing in 8 bits."""
    last = args[-1].dtype
    bits = int(last.name.lstrip("uint"))
    kind = "uint" if TABLE[name].of_bits or last.name[0] == "u" else "int"
    if name == "shift-right-arithmetic":
        amount = convert(args[1], _integer("uint", bits)).astype(np.int8)
        return convert(f(convert(args[0], _integer("int", bits)).astype(np.int8), amount), last)
    narrow, eight = _integer(kind, bits), _integer(kind, 8)
    wide = [a if a.dtype == np.bool_ else convert(a, narrow).astype(eight) for a in args]
    if name == "mulhi":
        wide = [a.astype(np.int32) for a in wide]
        return convert((wide[0] * wide[1]) >> bits, last)
    result = np.asarray(f(*wide))
    if name == "count-leading-zeros":
        result = result - np.uint8(8 - bits)
    return result if result.dtype == np.bool_ else convert(result, last)


def _integer(kind: str, bits: int) -> np.dtype[Any]:
    return to_numpy(BY_NAME[f"{kind[0].replace('i', 's')}{bits}"])


def _bits(a: Array) -> int:
    return int(a.dtype.itemsize) * 8


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    zero, safe = b == 0, np.where(b == 0, np.ones_like(b), b)
    if a.dtype.kind == "u":
        return np.where(zero, np.iinfo(a.dtype).max, a // safe).astype(a.dtype)
    overflow = (a == np.iinfo(a.dtype).min) & (b == -1)
    safe = np.where(overflow, np.ones_like(b), safe)
    q = a // safe
    q = q + ((q * safe != a) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(zero, -1, np.where(overflow, a, q)).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.fmod(a, b)
    zero, safe = b == 0, np.where(b == 0, np.ones_like(b), b)
    if a.dtype.kind == "i":
        safe = np.where(safe == -1, np.ones_like(b), safe)
    return np.where(zero, a, np.fmod(a, safe)).astype(a.dtype)


def _shift_left(a: Array, b: Array) -> Array:
    n = _unsigned(b)
    shifted = np.left_shift(_unsigned(a), np.minimum(n, _bits(a) - 1))
    return _zero_beyond(shifted, n, a)


def _shift_right_logical(a: Array, b: Array) -> Array:
    n = _unsigned(b)
    shifted = np.right_shift(_unsigned(a), np.minimum(n, _bits(a) - 1))
    return _zero_beyond(shifted, n, a)


def _shift_right_arithmetic(a: Array, b: Array) -> Array:
    s = a.view(f"i{a.dtype.itemsize}")
    n = np.minimum(_unsigned(b), _bits(a) - 1).astype(s.dtype)
    return np.asarray(np.right_shift(s, n)).view(a.dtype)


def _unsigned(a: Array) -> Array:
    """Return integers as those of the same bits without a sign: a negative one is large."""
    return a.view(f"u{a.dtype.itemsize}")


def _zero_beyond(shifted: Array, n: Array, a: Array) -> Array:
    """Return bits that were shifted by ``n``, in the type of ``a``; 0 from its width on."""
    beyond = n >= _bits(a)
    if beyond.any():
        shifted = np.where(beyond, shifted.dtype.type(0), shifted)
    return np.asarray(shifted).view(a.dtype)


def _popcnt(a: Array) -> Array:
    return np.asarray(np.bitwise_count(a.view(f"u{a.dtype.itemsize}"))).astype(a.dtype)


def _clz(a: Array) -> Array:
    u = a.view(f"u{a.dtype.itemsize}").astype(np.uint64)
    n = np.zeros(u.shape, np.int64)
    for k in range(_bits(a)):
        n += (u >> np.uint64(k)) == 0
    return n.astype(a.dtype)


def _sign(a: Array) -> Array:
    if a.dtype.kind == "f":
        return np.where((a == 0) | np.isnan(a), a, np.copysign(np.ones_like(a), a)).astype(a.dtype)
    return np.sign(a)


def _round_away(a: Array) -> Array:
    t = np.trunc(a)
    return np.where(np.abs(a - t) >= 0.5, t + np.copysign(1.0, a), t).astype(a.dtype)


def _logistic(a: Array) -> Array:
    with np.errstate(under="ignore"):
        small = np.exp(-np.abs(a))  # never overflows; far below 0 it is the result
        return np.asarray(np.where(a < 0, small, 1) / (1 + small)).astype(a.dtype)


def _erf(a: Array) -> Array:
    from math import erf

    return np.asarray(np.vectorize(erf, otypes=[np.float64])(a) if a.size else a).astype(a.dtype)


def _erfc(a: Array) -> Array:
    from math import erfc

    return np.asarray(np.vectorize(erfc, otypes=[np.float64])(a) if a.size else a).astype(a.dtype)


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        result, base, e = np.ones_like(a), a.copy(), b.copy()
        negative = (e < 0) if a.dtype.kind == "i" else np.zeros(e.shape, bool)
        e = np.where(negative, 0, e)
        while np.any(e > 0):
            result = np.where(e & 1, result * base, result)
            base, e = base * base, e >> 1
        inverse = (
            np.where(a == 1, 1, np.where(a == -1, np.where(b & 1, -1, 1), 0))
            if (a.dtype.kind == "i")
            else result
        )
        return np.where(negative, inverse, result).astype(a.dtype)
    return np.power(a, b)


def _max(a: Array, b: Array) -> Array:
    if a.dtype.kind != "f":
        return np.logical_or(a, b) if a.dtype.kind == "b" else np.maximum(a, b)
    return np.where((a == 0) & (b == 0), a + b, np.maximum(a, b))


def _min(a: Array, b: Array) -> Array:
    if a.dtype.kind != "f":
        return np.logical_and(a, b) if a.dtype.kind == "b" else np.minimum(a, b)
    return np.where((a == 0) & (b == 0), -(-a - b), np.minimum(a, b))


def _add(a: Array, b: Array) -> Array:
    return np.logical_or(a, b) if a.dtype.kind == "b" else np.add(a, b)


def _multiply(a: Array, b: Array) -> Array:
    return np.logical_and(a, b) if a.dtype.kind == "b" else np.multiply(a, b)


def _rsqrt(a: Array) -> Array:
    return (1 / np.sqrt(a)).astype(a.dtype)


def _not(a: Array) -> Array:
    return np.logical_not(a) if a.dtype.kind == "b" else np.invert(a)


def _clamp(low: Array, x: Array, high: Array) -> Array:
    return _min(_max(x, low), high).astype(x.dtype)


def _mulhi(a: Array, b: Array) -> Array:
    wide = a.astype(object) * b.astype(object)
    return np.asarray(wide >> _bits(a)).astype(a.dtype)


def _fma(a: Array, b: Array, c: Array) -> Array:
    return np.asarray(a * b + c).astype(a.dtype)


def _op(
    name: str, arity: int, kinds: str, numpy: Callable[..., Array], **more: Any
) -> ElementwiseOp:
    return ElementwiseOp(name, arity, kinds, _wide(name, numpy), **more)


def _slow(
    name: str, kinds: str, numpy: Callable[..., Array], flops: float, **more: Any
) -> ElementwiseOp:
    return _op(name, 1, kinds, numpy, flops=flops, transcendental=True, **more)


def _compare(name: str, numpy: Callable[..., Array], kinds: str = "psufc") -> ElementwiseOp:
    return ElementwiseOp(name, 2, kinds, _wide(name, numpy), result="pred", index_only=True)


_CHLO = ("chlo",)
_BOTH: dict[str, Any] = {"commutative": True, "associative": True}

TABLE: dict[str, ElementwiseOp] = {
    op.name: op
    for op in (
        _op("add", 2, "psufc", _add, **_BOTH, keeps_nan=True, keeps_positive=True),
        _op("subtract", 2, "sufc", np.subtract, keeps_nan=True),
        _op("multiply", 2, "psufc", _multiply, **_BOTH, keeps_nan=True, keeps_positive=True),
        _op("divide", 2, "sufc", _divide, flops=4, keeps_nan=True),
        _op("remainder", 2, "suf", _remainder, flops=8),
        _op("maximum", 2, "psuf", _max, **_BOTH, rounding="commutes", keeps_nan=True),
        _op("minimum", 2, "psuf", _min, **_BOTH, rounding="commutes", keeps_nan=True),
        _op("power", 2, "sufc", _power, flops=30, transcendental=True),
        _op("atan2", 2, "fc", np.arctan2, flops=30, transcendental=True),
        ElementwiseOp("floordiv", 2, "su", np.floor_divide, flops=4, index_only=True),
        ElementwiseOp("floormod", 2, "su", np.mod, flops=4, index_only=True),
        _op("mulhi", 2, "su", _mulhi, dialects=_CHLO),
        _op("fma", 3, "f", _fma, flops=2, index_only=True),
        _op("and", 2, "psu", np.bitwise_and, **_BOTH),
        _op("or", 2, "psu", np.bitwise_or, **_BOTH),
        _op("xor", 2, "psu", np.bitwise_xor, **_BOTH),
        _op("not", 1, "psu", _not),
        _op("shift-left", 2, "su", _shift_left, of_bits=True),
        _op("shift-right-logical", 2, "su", _shift_right_logical, of_bits=True),
        _op("shift-right-arithmetic", 2, "su", _shift_right_arithmetic),
        _op("popcnt", 1, "su", _popcnt, of_bits=True),
        _op("count-leading-zeros", 1, "su", _clz, of_bits=True),
        _compare("eq", np.equal),
        _compare("ne", np.not_equal),
        _compare("lt", np.less, "psuf"),
        _compare("le", np.less_equal, "psuf"),
        _compare("gt", np.greater, "psuf"),
        _compare("ge", np.greater_equal, "psuf"),
        _op("is-finite", 1, "f", np.isfinite, result="pred"),
        ElementwiseOp("select", 3, "psufc", np.where, rounding="commutes"),
        _op("clamp", 3, "psuf", _clamp, rounding="commutes", keeps_nan=True),
        _op("abs", 1, "sfc", np.abs, result="real", rounding="commutes", keeps_nan=True),
        _op("negate", 1, "sufc", np.negative, rounding="commutes", keeps_nan=True),
        _op("sign", 1, "sfc", _sign, rounding="exact"),
        _op("floor", 1, "f", np.floor, rounding="exact"),
        _op("ceil", 1, "f", np.ceil, rounding="exact"),
        _op("round-nearest-even", 1, "f", np.rint, rounding="exact"),
        _op("round-nearest-afz", 1, "f", _round_away, rounding="exact"),
        _op("sqrt", 1, "fc", np.sqrt, flops=6, keeps_nan=True, needs_positive=True),
        _op("rsqrt", 1, "fc", _rsqrt, flops=8, keeps_nan=True, needs_positive=True),
        _op("cbrt", 1, "fc", np.cbrt, flops=20, transcendental=True, needs_positive=True),
        _slow("exponential", "fc", np.exp, 12, keeps_nan=True),
        _slow("exp2", "f", np.exp2, 4, keeps_nan=True, index_only=True),
        _slow("exponential-minus-one", "fc", np.expm1, 16, keeps_nan=True),
        _slow("log", "fc", np.log, 14, keeps_nan=True, needs_positive=True),
        _slow("log-plus-one", "fc", np.log1p, 18, keeps_nan=True, needs_positive=True),
        _slow("logistic", "fc", _logistic, 16, keeps_nan=True),
        _slow("tanh", "fc", np.tanh, 16, keeps_nan=True),
        _slow("sine", "fc", np.sin, 20),
        _slow("cosine", "fc", np.cos, 20),
        _slow("tan", "fc", np.tan, 24, dialects=("stablehlo", *_CHLO)),
        _slow("sinh", "fc", np.sinh, 20, dialects=_CHLO),
        _slow("cosh", "fc", np.cosh, 20, dialects=_CHLO),
        _slow("asin", "fc", np.arcsin, 20, dialects=_CHLO),
        _slow("acos", "fc", np.arccos, 20, dialects=_CHLO),
        _slow("atan", "fc", np.arctan, 20, dialects=_CHLO),
        _slow("asinh", "fc", np.arcsinh, 24, dialects=_CHLO),
        _slow("acosh", "fc", np.arccosh, 24, dialects=_CHLO),
        _slow("atanh", "fc", np.arctanh, 24, dialects=_CHLO),
        _slow("erf", "f", _erf, 20, dialects=_CHLO),
        _slow("erfc", "f", _erfc, 24, dialects=_CHLO),
    )
}


def dialect_names(dialect: str) -> tuple[str, ...]:
    """Return the names, in an MLIR dialect, of the unary and binary operations that it has."""
    rows = (op for op in TABLE.values() if op.arity < 3 and not op.index_only)
    return tuple(op.name.replace("-", "_") for op in rows if dialect in op.dialects)


DIRECTIONS: dict[str, str] = {d: d.lower() for d in ("EQ", "NE", "LT", "LE", "GT", "GE")}


def identity(op: str, dtype: DType) -> float | int | bool:
    """Return the neutral element of a reduction by ``op``; ``KeyError`` if it has none."""
    if op in ("add", "or", "xor"):
        return False if dtype.kind == "pred" else 0
    if op == "multiply":
        return True if dtype.kind == "pred" else 1
    if op == "and":
        return (
            True
            if dtype.kind == "pred"
            else (-1 if dtype.kind == "signed" else (1 << dtype.bits) - 1)
        )
    low = op == "maximum"
    if op not in ("maximum", "minimum"):
        raise KeyError(f"{op} has no neutral element")
    match dtype.kind:
        case "pred":
            return not low
        case "signed":
            half = 1 << (dtype.bits - 1)
            return -half if low else half - 1
        case "unsigned":
            return 0 if low else (1 << dtype.bits) - 1
        case _:
            return float("-inf") if low else float("inf")
