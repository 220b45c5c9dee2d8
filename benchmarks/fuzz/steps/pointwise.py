"""Element-wise steps: arithmetic, bits, comparisons, conversions, functions of floats."""

from __future__ import annotations

from ..builder import COMPLEX, EXACT_TO, NARROW_FLOATS, PART, WIDE_FLOATS, Builder, Value, range_of
from .registry import step

BITWISE = ("and", "or", "xor")
SHIFTS = ("shift-left", "shift-right-logical", "shift-right-arithmetic")
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def any_value(b: Builder, kinds: str = "pisfnc") -> Value:
    """Return a value of one of the kinds, made if there is none or now and then."""
    names = {
        "pred": "p",
        "signed": "is",
        "unsigned": "is",
        "float": "fn",
        "complex": "c",
    }
    found = b.some(lambda v: any(k in kinds for k in names[v.kind]))
    if found is None or b.chance(0.15):
        drawn = [k for k in kinds if k in "iff" or b.chance(0.3)] or list(kinds)
        return b.fresh(b.dtype("".join(drawn)), b.dims(b.number(0, 4)))
    return found


@step(8)
def binary(b: Builder) -> object:
    """Arithmetic of two values of one shape."""
    x = any_value(b, "isfnc" if b.exact else "fc")
    y = b.like(x)
    op = b.pick(("add", "subtract", "multiply", "maximum", "minimum"))
    if x.kind == "complex" and op in ("maximum", "minimum"):
        op = "add"
    bound = _bound(op, x, y)
    if not b.holds(x.dtype, bound) or (not b.exact and bound > 1e3):
        op, bound = ("maximum", max(x.bound, y.bound)) if x.kind != "complex" else ("", 0.0)
        if not op:
            return None
    pair = f"{x.name}, {y.name}" if b.chance(0.5) else f"{y.name}, {x.name}"
    return b.emit(x.dtype, x.dims, f"{op}({pair})", bound)


def _bound(op: str, x: Value, y: Value) -> float:
    match op:
        case "add" | "subtract":
            return x.bound + y.bound
        case "multiply":
            return x.bound * y.bound * (2 if x.kind == "complex" else 1)
        case _:
            return max(x.bound, y.bound)


@step(3, smooth=False)
def integers(b: Builder) -> object:
    """Bits, shifts, division and power of integers."""
    x = any_value(b, "pis")
    y = b.like(x)
    if x.kind == "pred":
        return b.emit("pred", x.dims, f"{b.pick(BITWISE)}({x.name}, {y.name})", 1.0)
    op = b.pick((*BITWISE, *SHIFTS, "divide", "remainder", "power"))
    return b.emit(x.dtype, x.dims, f"{op}({x.name}, {y.name})", 0.0)


@step(3, smooth=False)
def unary(b: Builder) -> object:
    """One operand, exact for integers."""
    x = any_value(b)
    match x.kind:
        case "pred":
            op = "not"
        case "signed":
            op = b.pick(("not", "popcnt", "count-leading-zeros", "abs", "negate", "sign"))
        case "unsigned":
            op = b.pick(("not", "popcnt", "count-leading-zeros"))
        case "float":
            op = b.pick(
                (
                    "abs",
                    "negate",
                    "sign",
                    "floor",
                    "ceil",
                    "round-nearest-even",
                    "round-nearest-afz",
                    "copy",
                )
            )
        case _:
            op = b.pick(("negate", "copy"))
    return b.emit(x.dtype, x.dims, f"{op}({x.name})", x.bound)


@step(5, exact=False)
def function(b: Builder) -> object:
    """Return a continuous function of floats; what could overflow is held back by a tanh."""
    x = b.floats()
    gentle = ("tanh", "logistic", "sine", "cosine", "erf", "atan", "asinh", "negate")
    steep = (
        "exponential",
        "exponential-minus-one",
        "sinh",
        "cosh",
        "log-plus-one",
        "sqrt",
        "rsqrt",
        "log",
        "cbrt",
        "tan",
    )
    op = b.pick((*gentle, *steep))
    if op in ("sqrt", "rsqrt", "log", "log-plus-one", "cbrt"):
        square = b.emit(x.dtype, x.dims, f"multiply({x.name}, {x.name})", x.bound**2)
        one = b.scalar(x.dtype, 1)
        ones = b.emit(x.dtype, x.dims, f"broadcast({one.name}), dimensions={{}}", 1.0)
        x = b.emit(x.dtype, x.dims, f"add({square.name}, {ones.name})", x.bound**2 + 1)
    elif op in steep:
        x = b.emit(x.dtype, x.dims, f"tanh({x.name})", 1.0)
    bound = 4.0 if op in steep else max(1.6, x.bound)
    bound = x.bound if op in ("sqrt", "cbrt", "asinh", "log", "negate") else bound
    return b.emit(x.dtype, x.dims, f"{op}({x.name})", bound)


@step(3, exact=False)
def quotient(b: Builder) -> object:
    """Return a division by what is at least 1, atan2, or a power of a positive number."""
    x = b.floats()
    y = b.like(x)
    square = b.emit(x.dtype, x.dims, f"multiply({y.name}, {y.name})", y.bound**2)
    one = b.scalar(x.dtype, 1)
    ones = b.emit(x.dtype, x.dims, f"broadcast({one.name}), dimensions={{}}", 1.0)
    y = b.emit(x.dtype, x.dims, f"add({square.name}, {ones.name})", y.bound**2 + 1)
    match b.number(0, 3):
        case 0:
            return b.emit(x.dtype, x.dims, f"atan2({x.name}, {y.name})", 1.6)
        case 1:
            small = b.emit(x.dtype, x.dims, f"tanh({x.name})", 1.0)
            text = f"power({y.name}, {small.name})"
            return b.emit(x.dtype, x.dims, text, y.bound)
        case _:
            return b.emit(x.dtype, x.dims, f"divide({x.name}, {y.name})", x.bound)


@step(3, smooth=False)
def compared(b: Builder) -> object:
    """Return a comparison of two values."""
    x = any_value(b)
    y = b.like(x)
    direction = b.pick(DIRECTIONS[:2] if x.kind == "complex" else DIRECTIONS)
    return b.emit("pred", x.dims, f"compare({x.name}, {y.name}), direction={direction}", 1.0)


@step(4)
def selected(b: Builder) -> object:
    """Between two values, by a flag per element or one for all."""
    x = any_value(b)
    y = b.like(x)
    dims = () if b.chance(0.15) else x.dims
    flag = b.some(lambda v: v.dtype == "pred" and v.dims == dims) or b.fresh("pred", dims)
    bound = max(x.bound, y.bound)
    return b.emit(x.dtype, x.dims, f"select({flag.name}, {x.name}, {y.name})", bound)


@step(2)
def relu(b: Builder) -> object:
    """max(x, 0), or between two bounds that are scalars."""
    x = any_value(b, "isf" if b.exact else "f")
    if b.chance(0.5):
        zero = b.scalar(x.dtype, 0)
        zeros = b.emit(x.dtype, x.dims, f"broadcast({zero.name}), dimensions={{}}", 0.0)
        return b.emit(x.dtype, x.dims, f"maximum({x.name}, {zeros.name})", x.bound)
    low, high = b.scalar(x.dtype, 0), b.scalar(x.dtype, 1)
    text = f"clamp({low.name}, {x.name}, {high.name})"
    return b.emit(x.dtype, x.dims, text, min(1.0, max(x.bound, 1.0)))


@step(4)
def converted(b: Builder) -> object:
    """To another type that holds it."""
    x = any_value(b) if b.exact else b.floats()
    if x.kind == "complex":
        to = b.pick(COMPLEX)
    else:
        pool = "pisfn" if b.exact else "f"
        to = b.dtype(pool)
    kind = Value("", to, (), 0).kind
    if x.kind == "pred" and kind == "complex":
        return None
    bound = min(x.bound, range_of(x.dtype)) if x.kind != "float" else x.bound
    if kind in ("signed", "unsigned") and x.kind == "float":
        low = 0.0 if kind == "unsigned" else -range_of(to)
        if -x.bound < low or x.bound > range_of(to) - 1:
            return None  # what is out of range saturates here, elsewhere it does not
    if not b.holds(to, bound):
        return None
    return b.emit(to, x.dims, f"convert({x.name})", bound)


@step(1, smooth=False)
def reinterpreted(b: Builder) -> object:
    """Return the bits of an integer as another integer type of the same width."""
    x = any_value(b, "i")
    to = ("u" if x.dtype[0] == "s" else "s") + x.dtype[1:]
    return b.emit(to, x.dims, f"bitcast-convert({x.name})", 0.0)


@step(1)
def parts(b: Builder) -> object:
    """Return a complex number of two real ones, or a part of one."""
    x = any_value(b, "fc")
    if x.kind == "complex":
        op = b.pick(("real", "imag"))
        return b.emit(PART[x.dtype], x.dims, f"{op}({x.name})", x.bound)
    if x.dtype not in PART.values():
        return None
    to = "c64" if x.dtype == "f32" else "c128"
    y = b.like(x)
    text = f"complex({x.name}, {y.name})"
    return b.emit(to, x.dims, text, max(x.bound, y.bound))


@step(1)
def narrowed(b: Builder) -> object:
    """Through a float of 8 bits and back."""
    x = b.floats()
    to = b.pick(NARROW_FLOATS)
    if not b.exact or x.bound > EXACT_TO[to]:
        return None
    small = b.emit(to, x.dims, f"convert({x.name})", x.bound)
    return b.emit(b.pick(WIDE_FLOATS), x.dims, f"convert({small.name})", x.bound)


@step(1, smooth=False)
def rounded(b: Builder) -> object:
    """To fewer bits of mantissa, which small integers do not need."""
    x = b.floats()
    if x.bound > 2**8:
        return None
    text = f"reduce-precision({x.name}), exponent_bits=8, mantissa_bits={b.number(8, 20)}"
    if x.dtype == "f16":
        text = f"reduce-precision({x.name}), exponent_bits=5, mantissa_bits={b.number(8, 10)}"
    return b.emit(x.dtype, x.dims, text, x.bound)
