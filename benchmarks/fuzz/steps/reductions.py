"""Reducing steps: over dimensions and windows, of one value or of several, and their gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..builder import ELEMENTS, Builder, Value, listed, shape_of
from .moves import value
from .pointwise import any_value
from .registry import step


def combined(b: Builder, x: Value, terms: int) -> tuple[str, float] | None:
    """Return a commutative operation that stays exact over so many terms, and the result's
    bound.
    """
    match x.kind:
        case "pred":
            return b.pick(("and", "or", "xor")), 1.0
        case "complex":
            op = "add"
        case _:
            ops = ["add", "add", "maximum", "minimum"]
            ops += ["and", "or", "xor", "multiply"] if x.kind in ("signed", "unsigned") else []
            op = b.pick(ops)
    bound = (x.bound + 1) * max(terms, 1) if op == "add" else x.bound + 1
    if not b.holds(x.dtype, bound) or (not b.exact and bound > 1e4):
        if x.kind == "complex":
            return None
        op, bound = "maximum", x.bound + 1
    return op, bound


@step(7)
def reduce(b: Builder) -> object:
    """Over some dimensions, from a start that is a constant or not."""
    x = value(b)
    axes = b.subset(len(x.dims), 0.6)
    found = combined(b, x, math.prod(x.dims[d] for d in axes))
    if found is None:
        return None
    op, bound = found
    kept = [n for d, n in enumerate(x.dims) if d not in axes]
    start = b.scalar(x.dtype, b.number(0, 1)) if b.chance(0.7) else b.fresh(x.dtype, (), 1.0)
    if not axes and not (op == "add" and b.exact):
        return None
    if not axes:  # XLA leaves the start out where nothing is reduced
        start = b.scalar(x.dtype, 0)
    order = axes[::-1] if b.chance(0.2) else axes
    text = f"reduce({x.name}, {start.name}), dimensions={listed(order)}"
    return b.emit(x.dtype, kept, f"{text}, to_apply={b.simple(x.dtype, op)}", bound)


@step(2, smooth=False)
def arg_reduce(b: Builder) -> object:
    """Return the largest or smallest along a dimension and where it is, the first of equals."""
    x = any_value(b, "isf")
    if not x.dims:
        return None
    d = b.number(0, len(x.dims) - 1)
    kept = [n for k, n in enumerate(x.dims) if k != d]
    places = b.row(shape_of("s32", x.dims), f"iota(), iota_dimension={d}")
    way = b.pick(("GT", "LT"))
    by = b.combiner(
        [x.dtype, "s32", x.dtype, "s32"],
        [
            f"a = pred[] compare(q0, q2), direction={way}",
            "e = pred[] compare(q0, q2), direction=EQ",
            "f = pred[] compare(q1, q3), direction=LT",
            "g = pred[] and(e, f)",
            "c = pred[] or(a, g)",
            f"x = {x.dtype}[] select(c, q0, q2)",
            "y = s32[] select(c, q1, q3)",
            f"r = ({x.dtype}[], s32[]) tuple(x, y)",
        ],
    )
    start = b.scalar(x.dtype, 1)
    at = b.scalar("s32", 0)
    shape = f"({shape_of(x.dtype, kept)}, {shape_of('s32', kept)})"
    both = b.row(
        shape,
        f"reduce({x.name}, {places}, {start.name}, {at.name}), dimensions={{{d}}}, to_apply={by}",
    )
    b.emit(x.dtype, kept, f"get-tuple-element({both}), index=0", max(x.bound, 1.0))
    return b.emit("s32", kept, f"get-tuple-element({both}), index=1", 0.0)


@dataclass(frozen=True, slots=True)
class Side:
    """A window along one dimension."""

    size: int = 1
    stride: int = 1
    low: int = 0
    high: int = 0
    spread: int = 1  # lhs_dilate
    apart: int = 1  # rhs_dilate
    reversal: int = 0

    def places(self, n: int) -> int | None:
        """Return how many windows fit n elements; None if negative padding removes too many."""
        wide = ((n - 1) * self.spread + 1 if n else 0) + self.low + self.high
        reach = (self.size - 1) * self.apart + 1
        if wide < 0:
            return None
        return (wide - reach) // self.stride + 1 if wide >= reach else 0


def window(sides: list[Side]) -> str:
    """Return the attribute, empty where there is no dimension."""
    if not sides:
        return ""

    def x(key: str) -> str:
        return "x".join(str(getattr(s, key)) for s in sides)

    pads = "x".join(f"{s.low}_{s.high}" for s in sides)
    more = f" rhs_reversal={x('reversal')}" if any(s.reversal for s in sides) else ""
    return (
        f"window={{size={x('size')} stride={x('stride')} pad={pads} lhs_dilate={x('spread')} "
        f"rhs_dilate={x('apart')}{more}}}, "
    )


def sides(b: Builder, dims: tuple[int, ...], wild: bool, **fixed: Any) -> list[Side]:
    """Windows that fit."""
    found: list[Side] = []
    for n in dims:
        while True:
            one = Side(
                size=b.number(1, 4),
                stride=b.number(1, 3) if wild or b.chance(0.3) else 1,
                low=b.number(-1, 3) if wild else b.number(0, 2),
                high=b.number(-1, 3) if wild else b.number(0, 2),
                spread=fixed.get("spread", b.number(1, 3) if wild else 1),
                apart=fixed.get("apart", b.number(1, 3) if wild else 1),
                reversal=fixed.get("reversal", b.number(0, 1) if wild else 0),
            )
            if one.places(n) is not None:
                break
        found.append(one)
    return found


@step(4)
def reduce_window(b: Builder) -> object:
    """Return a pooling, a running sum, or anything else over windows."""
    x = any_value(b, "isf" if b.exact else "f")
    if len(x.dims) > 4:
        return None
    if x.dims and b.chance(0.3):  # a running sum
        d, ahead = b.number(0, len(x.dims) - 1), b.chance(0.5)
        n = max(x.dims[d], 1)
        ws = [Side() for _ in x.dims]
        ws[d] = Side(n, low=0 if ahead else n - 1, high=n - 1 if ahead else 0)
    else:
        ws = sides(b, x.dims, b.chance(0.4), reversal=0)
    out = [s.places(n) or 0 for n, s in zip(x.dims, ws, strict=True)]
    terms = math.prod(s.size for s in ws)
    found = combined(b, x, terms)
    if found is None or math.prod(out) > ELEMENTS or math.prod(out) * terms > 1 << 17:
        return None
    op, bound = found
    start = b.scalar(x.dtype, 0 if op == "add" or x.kind == "unsigned" else b.number(0, 1))
    text = f"reduce-window({x.name}, {start.name}), {window(ws)}"
    return b.emit(x.dtype, out, f"{text}to_apply={b.simple(x.dtype, op)}", bound)


@step(2, smooth=False)
def select_and_scatter(b: Builder) -> object:
    """Return the gradient of a pooling by maximum."""
    x = any_value(b, "if")
    if not 1 <= len(x.dims) <= 4:
        return None
    ws = sides(b, x.dims, False, spread=1, apart=1, reversal=0)
    ws = [Side(s.size, s.stride, min(s.low, s.size - 1), min(s.high, s.size - 1)) for s in ws]
    out = [s.places(n) or 0 for n, s in zip(x.dims, ws, strict=True)]
    source = b.fresh(x.dtype, out)
    bound = (source.bound + 1) * math.prod(s.size for s in ws)
    if not b.holds(x.dtype, bound) or not b.holds(x.dtype, x.bound):
        return None
    select = b.combiner(
        [x.dtype, x.dtype], [f"r = pred[] compare(q0, q1), direction={b.pick(('GE', 'LE'))}"]
    )
    start = b.scalar(x.dtype, 0)
    text = f"select-and-scatter({x.name}, {source.name}, {start.name}), {window(ws)}"
    more = f"select={select}, scatter={b.simple(x.dtype, 'add')}"
    return b.emit(x.dtype, x.dims, text + more, bound)


@step(1, exact=False)
def batch_norm(b: Builder) -> object:
    """Training, with its statistics, or inference."""
    x = b.floats()
    if not x.dims or not x.size or x.bound > 50:
        return None
    d = b.number(0, len(x.dims) - 1)
    vector = shape_of(x.dtype, [x.dims[d]])
    more = f"epsilon=0.01, feature_index={d}"
    scale, offset = (b.fresh(x.dtype, (x.dims[d],)) for _ in range(2))
    if b.chance(0.5):
        mean, spread = (b.fresh(x.dtype, (x.dims[d],)) for _ in range(2))
        square = b.emit(x.dtype, spread.dims, f"multiply({spread.name}, {spread.name})", 9.0)
        names = ", ".join(v.name for v in (x, scale, offset, mean, square))
        return b.emit(x.dtype, x.dims, f"batch-norm-inference({names}), {more}", 100.0)
    names = ", ".join(v.name for v in (x, scale, offset))
    three = b.row(f"({x.shape}, {vector}, {vector})", f"batch-norm-training({names}), {more}")
    for n in (1, 2):
        b.emit(x.dtype, (x.dims[d],), f"get-tuple-element({three}), index={n}", x.bound**2)
    return b.emit(x.dtype, x.dims, f"get-tuple-element({three}), index=0", 30.0)
