"""Random chains of operations that move elements, and deep graphs that compute on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import BY_NAME, to_numpy

INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
TYPES = ("pred", *INTEGERS, *FLOATS)
MOST = 2000  # elements of an array

Value = tuple[str, str, list[int]]  # name, element type, dimensions


def shape_of(dtype: str, dims: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


def listed(name: str, dims: Sequence[int]) -> str:
    return f"{name}={{{','.join(map(str, dims))}}}"


def emit(m: Any, dtype: str, dims: Sequence[int], text: str) -> Value:
    return m.emit(shape_of(dtype, dims), text), dtype, list(dims)


def drawn(m: Any, dtype: str, dims: Sequence[int]) -> Value:
    return m.parameter(dtype, dims), dtype, list(dims)


def broadcast(m: Any, v: Value) -> Value:
    name, t, dims = v
    rank = len(dims) + m.number(0, 2)
    places = sorted(m.order(rank)[: len(dims)])
    if m.chance(0.3):
        places = [places[k] for k in m.order(len(places))]
    out = m.dims(rank, 3)
    for p, d in zip(places, dims, strict=True):
        out[p] = d
    return emit(m, t, out, f"broadcast({name}), {listed('dimensions', places)}")


def factors(m: Any, size: int) -> list[int]:
    """Dimensions with this product, some of them 1."""
    out = []
    for p in (2, 3, 5, 7):
        while size and size % p == 0:
            size //= p
            if out and m.chance(0.5):
                out[m.number(0, len(out) - 1)] *= p
            else:
                out.insert(m.number(0, len(out)), p)
    if size != 1:
        out.insert(m.number(0, len(out)), size)
    for _ in range(m.number(0, 2)):
        out.insert(m.number(0, len(out)), 1)
    return out


def reshape(m: Any, v: Value) -> Value:
    name, t, dims = v
    return emit(m, t, factors(m, prod(dims)), f"reshape({name})")


def transpose(m: Any, v: Value) -> Value:
    name, t, dims = v
    order = m.order(len(dims))
    return emit(m, t, [dims[k] for k in order], f"transpose({name}), {listed('dimensions', order)}")


def slice_(m: Any, v: Value) -> Value:
    name, t, dims = v
    cuts, out = [], []
    for n in dims:
        first = m.number(0, n)
        last, step = m.number(first, n), m.number(1, 3)
        cuts.append(f"[{first}:{last}:{step}]")
        out.append(-(-(last - first) // step))
    return emit(m, t, out, f"slice({name}), slice={{{', '.join(cuts)}}}")


def reverse(m: Any, v: Value) -> Value:
    name, t, dims = v
    return emit(m, t, dims, f"reverse({name}), {listed('dimensions', m.subset(len(dims)))}")


def pad(m: Any, v: Value) -> Value:
    name, t, dims = v
    if not dims:
        return v
    fill, _, _ = drawn(m, t, [])
    while True:
        rows = [(m.number(-2, 2), m.number(-2, 2), m.pick([0, 0, 1, 2])) for _ in dims]
        out = [
            n + low + high + max(n - 1, 0) * inner
            for n, (low, high, inner) in zip(dims, rows, strict=True)
        ]
        if min(out) >= 0:
            break
    shown = "x".join("_".join(map(str, r)) for r in rows)
    return emit(m, t, out, f"pad({name}, {fill}), padding={shown}")


def concatenate(m: Any, v: Value) -> Value:
    name, t, dims = v
    if not dims:
        return v
    axis = m.number(0, len(dims) - 1)
    parts = [(name, dims[axis])]
    for _ in range(m.number(0, 3)):
        if m.chance(0.3):
            parts.append((name, dims[axis]))
        else:
            extent = m.number(0, 3)
            other = drawn(m, t, [*dims[:axis], extent, *dims[axis + 1 :]])
            parts.insert(m.number(0, len(parts)), (other[0], extent))
    out = [*dims[:axis], sum(n for _, n in parts), *dims[axis + 1 :]]
    named = ", ".join(p for p, _ in parts)
    return emit(m, t, out, f"concatenate({named}), dimensions={{{axis}}}")


def starts(m: Any, rank: int) -> str:
    """Start indices of one type, some far outside."""
    t = m.pick(INTEGERS)
    info = np.iinfo(to_numpy(BY_NAME[t]))
    names = []
    for _ in range(rank):
        at = m.pick([0, 1, 2, 3, info.min, info.max, -1 if info.min else info.max])
        names.append(m.parameter(t, (), np.asarray(at, to_numpy(BY_NAME[t]))))
    return "".join(f", {n}" for n in names)


def dynamic_slice(m: Any, v: Value) -> Value:
    name, t, dims = v
    sizes = [m.number(0 if m.chance(0.05) else min(n, 1), n) for n in dims]
    text = f"dynamic-slice({name}{starts(m, len(dims))}), {listed('dynamic_slice_sizes', sizes)}"
    return emit(m, t, sizes, text)


def dynamic_update_slice(m: Any, v: Value) -> Value:
    name, t, dims = v
    sizes = [m.number(0 if m.chance(0.05) else min(n, 1), n) for n in dims]
    update = drawn(m, t, sizes)
    return emit(m, t, dims, f"dynamic-update-slice({name}, {update[0]}{starts(m, len(dims))})")


def bits(m: Any, v: Value) -> Value:
    """Other types of the same width, of half, of twice."""
    name, t, dims = v
    if t == "pred":
        return v
    old = BY_NAME[t].bits
    widths = [old] + [w for w in (8, 16, 32, 64) if w < old]
    widths += [w for w in (16, 32, 64) if w > old and dims and dims[-1] * old == w]
    width = m.pick(widths)
    to = m.pick([u for u in TYPES if u != "pred" and BY_NAME[u].bits == width])
    ratio = old // width if width < old else 1
    out = [*dims, ratio] if width < old else dims[:-1] if width > old else dims
    return emit(m, to, out, f"bitcast-convert({name})")


def convert(m: Any, v: Value) -> Value:
    name, _, dims = v
    return emit(m, m.pick(TYPES), dims, f"convert({name})")  # of small whole numbers


def clamp(m: Any, v: Value) -> Value:
    name, t, dims = v
    if t == "pred":
        return v
    low, high = (drawn(m, t, dims if m.chance(0.5) else []) for _ in range(2))
    return emit(m, t, dims, f"clamp({low[0]}, {name}, {high[0]})")


def chosen(m: Any, v: Value) -> Value:
    name, t, dims = v
    which = drawn(m, "pred", dims if m.chance(0.7) else [])
    other = drawn(m, t, dims)
    return emit(m, t, dims, f"select({which[0]}, {name}, {other[0]})")


def compared(m: Any, v: Value) -> Value:
    name, t, dims = v
    other = drawn(m, t, dims)
    direction = m.pick(["EQ", "NE", "LT", "LE", "GT", "GE"])
    more = ", type=TOTALORDER" if t in FLOATS and m.chance(0.3) else ""
    text = f"compare({name}, {other[0]}), direction={direction}{more}"
    return emit(m, "pred", dims, text)


def counted(m: Any, v: Value) -> Value:
    _, t, dims = v
    if not dims or t == "pred":
        return v
    row = emit(m, t, dims, f"iota(), iota_dimension={m.number(0, len(dims) - 1)}")
    return emit(m, "pred", dims, f"compare({v[0]}, {row[0]}), direction=LT")


MOVES: list[Callable[[Any, Value], Value]] = [
    broadcast,
    reshape,
    transpose,
    slice_,
    reverse,
    pad,
    concatenate,
    dynamic_slice,
    dynamic_update_slice,
    bits,
    convert,
    clamp,
    chosen,
    compared,
    counted,
]


def move(m: Any) -> None:
    """A chain of moves; the results of some steps are results of the module too."""
    v = drawn(m, m.pick(TYPES), m.dims(m.number(0, 5) if m.chance(0.9) else 8, 3))
    kept = []
    for _ in range(m.number(1, 7)):
        step = m.pick(MOVES)
        if step is convert and v[1] in FLOATS and np.prod(v[2]) and m.chance(0.5):
            continue
        new = step(m, v)
        v = new if prod(new[2]) <= MOST else v
        if m.chance(0.2):
            kept.append(v)
    found = [*kept, v]
    m.emit(
        f"({', '.join(shape_of(t, d) for _, t, d in found)})",
        f"tuple({', '.join(n for n, _, _ in found)})",
    )


UNARY = {
    "f": ["negate", "abs", "sign", "floor", "ceil", "round-nearest-even", "copy"],
    "i": ["negate", "not", "popcnt", "count-leading-zeros", "abs", "sign", "copy"],
    "u": ["not", "popcnt", "count-leading-zeros", "copy"],
    "p": ["not", "copy"],
}
BINARY = {
    "f": ["add", "subtract", "multiply", "maximum", "minimum", "remainder"],
    "i": [
        "add",
        "subtract",
        "multiply",
        "divide",
        "remainder",
        "maximum",
        "minimum",
        "and",
        "or",
        "xor",
        "shift-left",
        "shift-right-logical",
        "shift-right-arithmetic",
        "mulhi",
    ],
    "p": ["add", "multiply", "maximum", "minimum", "and", "or", "xor"],
}


def compute(m: Any) -> None:
    """A graph of element-wise operations whose results are exact: floats are kept small."""
    dims = m.dims(m.number(0, 3), 4)
    pool: list[Value] = [drawn(m, m.pick(TYPES), dims) for _ in range(m.number(1, 4))]
    for _ in range(m.pick([3, 10, 40, 120])):
        a = m.pick(pool[-6:] if m.chance(0.7) else pool)
        same = [v for v in pool if v[1] == a[1]]
        b, t = m.pick(same), a[1]
        kind = "p" if t == "pred" else "f" if t in FLOATS else "i"
        match m.pick(["unary", "binary", "binary", "binary", "convert", "compare", "select"]):
            case "unary":
                ops = UNARY["u" if t.startswith("u") else kind]
                v = emit(m, t, dims, f"{m.pick(ops)}({a[0]})")
            case "binary":
                v = emit(m, t, dims, f"{m.pick(BINARY[kind])}({a[0]}, {b[0]})")
                if kind == "f":
                    low, high = (
                        emit(m, t, [], f"constant({c})")[0] for c in m.pick([(-3, 3), (-2, 4)])
                    )
                    v = emit(m, t, dims, f"clamp({low}, {v[0]}, {high})")
            case "convert":
                to = m.pick(TYPES)
                if to in FLOATS and kind == "i":  # small enough for every float
                    three = emit(m, t, [], "constant(3)")[0]
                    wide = emit(m, t, dims, f"broadcast({three}), dimensions={{}}")[0]
                    a = emit(m, t, dims, f"and({a[0]}, {wide})")
                v = emit(m, to, dims, f"convert({a[0]})")
            case "compare":
                direction = m.pick(["EQ", "NE", "LT", "LE", "GT", "GE"])
                v = emit(m, "pred", dims, f"compare({a[0]}, {b[0]}), direction={direction}")
            case _:
                which = [v for v in pool if v[1] == "pred"]
                if not which:
                    continue
                v = emit(m, t, dims, f"select({m.pick(which)[0]}, {a[0]}, {b[0]})")
        pool.append(v)
    found = pool[-1:] + ([m.pick(pool)] if m.chance(0.3) else [])
    m.emit(
        f"({', '.join(shape_of(t, d) for _, t, d in found)})",
        f"tuple({', '.join(n for n, _, _ in found)})",
    )


@pytest.mark.parametrize("generator", [move, compute])
def test_agrees(agrees: Callable[..., None], generator: Callable[[Any], None]) -> None:
    agrees(generator, 18, simulated=2)
