"""Random batch normalizations, maps and functions of every float type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import BY_NAME, to_numpy

INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
NUMBERS = (*INTEGERS, *FLOATS)

UNARY = (
    "exponential",
    "exponential-minus-one",
    "log",
    "log-plus-one",
    "logistic",
    "tanh",
    "sine",
    "cosine",
    "tan",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "sqrt",
    "rsqrt",
    "cbrt",
    "floor",
    "ceil",
    "round-nearest-even",
    "round-nearest-afz",
    "sign",
    "abs",
    "negate",
    "is-finite",
)


def shape_of(dtype: str, dims: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


def normal(m: Any, dtype: str, dims: Sequence[int], positive: bool = False) -> str:
    x = m.rng.standard_normal(dims)
    x = np.abs(x) + 0.5 if positive else x
    return str(m.parameter(dtype, dims, np.asarray(x).astype(to_numpy(BY_NAME[dtype]))))


def batch_norm(m: Any) -> None:
    t = m.pick(FLOATS)
    dims = [max(d, 1) for d in m.dims(m.number(1, 4))]
    feature = m.number(0, len(dims) - 1)
    row, n = shape_of(t, dims), dims[feature]
    vector = shape_of(t, [n])
    more = f"epsilon=0.001, feature_index={feature}"
    x, scale = normal(m, t, dims), normal(m, t, [n])
    three = f"({row}, {vector}, {vector})"
    match m.pick(["inference", "training", "grad"]):
        case "training":
            offset = normal(m, t, [n])
            m.emit(three, f"batch-norm-training({x}, {scale}, {offset}), {more}")
        case "inference":
            rest = normal(m, t, [n]), normal(m, t, [n]), normal(m, t, [n], positive=True)
            m.emit(row, f"batch-norm-inference({x}, {scale}, {', '.join(rest)}), {more}")
        case _:
            mean, variance = normal(m, t, [n]), normal(m, t, [n], positive=True)
            g = normal(m, t, dims)
            m.emit(three, f"batch-norm-grad({x}, {scale}, {mean}, {variance}, {g}), {more}")


def mapped(m: Any) -> None:
    """Any computation of scalars, calls of others included."""
    types = [m.pick(NUMBERS) for _ in range(m.number(1, 3))]
    out = m.pick(NUMBERS)
    inner = m.computation([out, out], [f"r = {out}[] maximum(q1, q0)"])
    rows = [f"x{k} = {out}[] convert(q{k})" for k in range(len(types))]
    rows.append(f"k = {out}[] constant(2)")
    rows.append(f"y0 = {out}[] call(x0, k), to_apply={inner}")
    rows += [f"y{k} = {out}[] add(y{k - 1}, x{k})" for k in range(1, len(types))]
    rows.append(f"c = pred[] compare(y{len(types) - 1}, k), direction=GT")
    rows.append(f"r = {out}[] select(c, y{len(types) - 1}, x0)")
    m.odd = 0.0
    by = m.computation(types, rows)
    dims = m.dims(m.number(0, 3))
    given = [m.parameter(t, dims) for t in types]
    listed = ",".join(map(str, range(len(dims))))
    text = f"map({', '.join(given)}), dimensions={{{listed}}}, to_apply={by}"
    m.emit(shape_of(out, dims), text)


def function(m: Any) -> None:
    t, dims = m.pick(FLOATS), m.dims(m.number(0, 3))
    x, opcode = normal(m, t, dims, positive=m.chance(0.3)), m.pick(UNARY)
    m.emit(shape_of("pred" if opcode == "is-finite" else t, dims), f"{opcode}({x})")


def rounded(m: Any) -> None:
    """Floats of few bits, zeros and infinities and what is too small or large among them."""
    t, dims = m.pick(FLOATS), m.dims(m.number(0, 2), 9)
    powers = m.rng.integers(-30, 30, dims)
    x = np.asarray(m.rng.standard_normal(dims) * 2.0**powers)
    x = np.where(m.rng.random(dims) < 0.1, m.rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan]), x)
    with np.errstate(over="ignore"):
        name = m.parameter(t, dims, x.astype(to_numpy(BY_NAME[t])))
    e, f = m.number(1, 11), m.number(0, 52)
    m.emit(shape_of(t, dims), f"reduce-precision({name}), exponent_bits={e}, mantissa_bits={f}")


@pytest.mark.parametrize("generator", [batch_norm, mapped, function, rounded])
def test_agrees(agrees: Callable[..., None], generator: Callable[[Any], None]) -> None:
    agrees(generator, 10)
