"""Random programs on complex numbers: arithmetic, moves, reductions, loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

TYPES = ("c64", "c128")
REAL = {"c64": "f32", "c128": "f64"}
CALM = ("negate", "sine", "tanh", "logistic", "sqrt", "asin", "atan", "sign")
PAIRS = ("add", "subtract", "multiply", "divide")

Value = tuple[str, list[int]]  # name, dimensions


def shape_of(dtype: str, dims: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


def drawn(m: Any, t: str, dims: Sequence[int]) -> Value:
    """Numbers whose magnitudes lie between 1/2 and 3, so that little cancels or grows."""
    size, turn = m.rng.uniform(0.5, 3.0, dims), m.rng.uniform(-3.1, 3.1, dims)
    values = np.asarray(size * np.exp(1j * turn)).astype({"c64": "c8", "c128": "c16"}[t])
    return m.parameter(t, dims, values), list(dims)


def arithmetic(m: Any, t: str, v: Value) -> Value:
    name, dims = v
    shape = shape_of(t, dims)
    match m.pick(["calm", "calm", "pair", "pair", "select", "parts", "real"]):
        case "calm":
            text = f"{m.pick(CALM)}({name})"
        case "pair":
            text = f"{m.pick(PAIRS)}({name}, {drawn(m, t, dims)[0]})"
        case "select":
            direction = m.pick(["EQ", "NE"])
            flags = shape_of("pred", dims)
            other = drawn(m, t, dims)[0]
            where = m.emit(flags, f"compare({name}, {other}), direction={direction}")
            text = f"select({where}, {name}, {other})"
        case "parts":
            part = shape_of(REAL[t], dims)
            re, im = (m.emit(part, f"{p}({name})") for p in ("real", "imag"))
            text = f"complex({im}, {re})"
        case _:
            size = m.emit(shape_of(REAL[t], dims), f"abs({name})")
            text = f"convert({size})"
    return m.emit(shape, text), dims


def moved(m: Any, t: str, v: Value) -> Value:
    name, dims = v
    match m.pick(["transpose", "reverse", "stack", "update", "flatten"]):
        case "transpose":
            order = m.order(len(dims))
            new = [dims[k] for k in order]
            listed = ",".join(map(str, order))
            return m.emit(shape_of(t, new), f"transpose({name}), dimensions={{{listed}}}"), new
        case "reverse":
            return m.emit(shape_of(t, dims), f"reverse({name}), dimensions={{0}}"), dims
        case "stack":
            new = [2 * dims[0], *dims[1:]]
            text = f"concatenate({name}, {name}), dimensions={{0}}"
            return m.emit(shape_of(t, new), text), new
        case "update":
            small = drawn(m, t, [max(1, d - 1) for d in dims])[0]
            spots = [m.parameter("s32", (), np.asarray(m.number(-1, d), np.int32)) for d in dims]
            text = f"dynamic-update-slice({name}, {small}, {', '.join(spots)})"
            return m.emit(shape_of(t, dims), text), dims
        case _:
            new = [int(np.prod(dims))]
            return m.emit(shape_of(t, new), f"reshape({name})"), new


def summed(m: Any, t: str, v: Value) -> Value:
    name, dims = v
    if len(dims) < 2:
        return v
    combine = m.pick(["add", "multiply"])
    by = m.computation([t, t], [f"r = {t}[] {combine}(q0, q1)"])
    axis = m.number(0, len(dims) - 1)
    start = drawn(m, t, ())[0]
    new = [d for k, d in enumerate(dims) if k != axis]
    text = f"reduce({name}, {start}), dimensions={{{axis}}}, to_apply={by}"
    return m.emit(shape_of(t, new), text), new


def product(m: Any, t: str, v: Value) -> Value:
    name, dims = v
    new = [*dims[:-1], m.number(1, 4)]
    other = drawn(m, t, [dims[-1], new[-1]])[0]
    axis = len(dims) - 1
    text = f"dot({name}, {other}), lhs_contracting_dims={{{axis}}}, rhs_contracting_dims={{0}}"
    return m.emit(shape_of(t, new), text), new


def looped(m: Any, t: str, v: Value) -> Value:
    """``while (i < n) z = z / c + c`` on a state with a complex array in an inner tuple."""
    name, dims = v
    shape, n = shape_of(t, dims), len(m.computations)
    state = f"(s32[], ({shape}, {shape}))"
    m.computations.append(
        f"test{n} {{\n  s = {state} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
        f"  n = s32[] constant({m.number(0, 3)})\n"
        f"  ROOT r = pred[] compare(i, n), direction=LT\n}}\n"
        f"turn{n} {{\n  s = {state} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
        f"  w = ({shape}, {shape}) get-tuple-element(s), index=1\n"
        f"  z = {shape} get-tuple-element(w), index=0\n"
        f"  c = {shape} get-tuple-element(w), index=1\n"
        f"  q = {shape} divide(z, c)\n  y = {shape} add(q, c)\n"
        f"  one = s32[] constant(1)\n  j = s32[] add(i, one)\n"
        f"  x = ({shape}, {shape}) tuple(y, c)\n  ROOT r = {state} tuple(j, x)\n}}\n"
    )
    c = drawn(m, t, dims)[0]
    inner = m.emit(f"({shape}, {shape})", f"tuple({name}, {c})")
    zero = m.emit("s32[]", "constant(0)")
    start = m.emit(state, f"tuple({zero}, {inner})")
    after = m.emit(state, f"while({start}), condition=test{n}, body=turn{n}")
    pair = m.emit(f"({shape}, {shape})", f"get-tuple-element({after}), index=1")
    return m.emit(shape, f"get-tuple-element({pair}), index=0"), dims


def branched(m: Any, t: str, v: Value) -> Value:
    name, dims = v
    shape, n = shape_of(t, dims), len(m.computations)
    m.computations.append(
        f"left{n} {{\n  z = {shape} parameter(0)\n  ROOT r = {shape} multiply(z, z)\n}}\n"
        f"right{n} {{\n  z = {shape} parameter(0)\n  ROOT r = {shape} negate(z)\n}}\n"
    )
    which = m.parameter("pred", (), np.asarray(m.chance(0.5)))
    branches = f"true_computation=left{n}, false_computation=right{n}"
    return m.emit(shape, f"conditional({which}, {name}, {name}), {branches}"), dims


STEPS = (arithmetic, arithmetic, moved, summed, product, looped, branched)


def program(m: Any) -> None:
    t = m.pick(TYPES)
    v = drawn(m, t, [m.number(1, 4) for _ in range(m.number(1, 3))])
    for _ in range(m.number(2, 6)):
        if v[1]:
            v = m.pick(STEPS)(m, t, v)
    if m.chance(0.3):
        size = m.emit(shape_of(REAL[t], v[1]), f"abs({v[0]})")
        whole = f"({shape_of(REAL[t], v[1])}, {shape_of(t, v[1])})"
        m.emit(whole, f"tuple({size}, {v[0]})")


def sort(m: Any) -> None:
    """By real part, then by imaginary part, with another operand that goes along."""
    t = m.pick(TYPES)
    r, dims = REAL[t], [m.number(1, 4), m.number(1, 9)]
    values = m.rng.integers(-2, 3, (2, *dims))
    z = np.asarray(values[0] + 1j * values[1]).astype({"c64": "c8", "c128": "c16"}[t])
    p = m.parameter(t, dims, z)
    q = m.parameter("s32", dims, np.arange(z.size, dtype=np.int32).reshape(dims))
    rows = [
        f"a = {r}[] real(q0)",
        f"b = {r}[] real(q1)",
        f"c = {r}[] imag(q0)",
        f"d = {r}[] imag(q1)",
        "less = pred[] compare(a, b), direction=LT",
        "same = pred[] compare(a, b), direction=EQ",
        "then = pred[] compare(c, d), direction=LT",
        "tied = pred[] and(same, then)",
        "r = pred[] or(less, tied)",
    ]
    by = m.computation([t, t, "s32", "s32"], rows)
    whole = f"({shape_of(t, dims)}, {shape_of('s32', dims)})"
    m.emit(whole, f"sort({p}, {q}), dimensions={{1}}, is_stable=true, to_apply={by}")


def scatter(m: Any) -> None:
    """Sums, products or the last value at places of which some are out of bounds."""
    t = m.pick(TYPES)
    rows, columns, count = m.number(1, 4), m.number(1, 4), m.number(1, 6)
    old, new = drawn(m, t, [rows, columns])[0], drawn(m, t, [count, columns])[0]
    spots = np.asarray(m.rng.integers(-1, rows + 1, (count, 1)), np.int32)
    at = m.parameter("s32", (count, 1), spots)
    how = m.pick(["add(q0, q1)", "multiply(q0, q1)", "copy(q1)"])
    by = m.computation([t, t], [f"r = {t}[] {how}"])
    attrs = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}"
    text = f"scatter({old}, {at}, {new}), {attrs}, index_vector_dim=1, to_apply={by}"
    m.emit(shape_of(t, [rows, columns]), text)


def window(m: Any) -> None:
    """Sums and products over windows, some padded, and running ones."""
    t, n = m.pick(TYPES), m.number(2, 7)
    x, start = drawn(m, t, [3, n])[0], drawn(m, t, ())[0]
    by = m.computation([t, t], [f"r = {t}[] {m.pick(['add', 'multiply'])}(q0, q1)"])
    size, low, high = (n, n - 1, 0) if m.chance(0.3) else (2, m.number(0, 1), m.number(0, 1))
    out = n + low + high - size + 1
    text = f"reduce-window({x}, {start}), window={{size=1x{size} pad=0_0x{low}_{high}}}"
    m.emit(shape_of(t, [3, out]), f"{text}, to_apply={by}")


@pytest.mark.parametrize("generator", [program, sort, scatter, window])
def test_agrees(agrees: Callable[..., None], generator: Callable[[Any], None]) -> None:
    agrees(generator, 6 if generator is program else 3)
