"""Random reductions: over dimensions, over windows, of several values, by any reducer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
NUMBERS = (*INTEGERS, "f16", "bf16", "f32", "f64")


def shape_of(dtype: str, dims: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


def joined(shapes: Sequence[str]) -> str:
    return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"


def reducer(m: Any) -> tuple[list[str], str]:
    """The types of the values that are reduced together, and how; associative, all of them."""
    match m.pick(["simple", "simple", "one", "keep", "affine", "best", "apart", "widen"]):
        case "one":  # not one operation, though commutative
            t = m.pick(NUMBERS)
            rows = [
                f"a = {t}[] maximum(q0, q1)",
                f"z = {t}[] constant(2)",
                "r = {t}[] maximum(a, z)",
            ]
            return [t], m.computation([t, t], [*rows[:2], f"r = {t}[] maximum(a, z)"])
        case "keep":  # associative, not commutative
            t, side = m.pick(NUMBERS), m.pick(["q0", "q1"])
            return [t], m.computation([t, t], [f"r = {t}[] copy({side})"])
        case "affine":  # x -> a x + b, one after the other
            t = m.pick(INTEGERS)
            rows = [
                f"a = {t}[] multiply(q0, q2)",
                f"s = {t}[] multiply(q1, q2)",
                f"b = {t}[] add(s, q3)",
                f"r = ({t}[], {t}[]) tuple(a, b)",
            ]
            return [t, t], m.computation([t] * 4, rows)
        case "best":  # the largest or smallest, and where it was
            t, i = m.pick(NUMBERS), m.pick(INTEGERS)
            m.odd = 0.0  # a NaN would make the order matter
            d = m.pick(["GE", "LE", "GT", "LT"])
            rows = [
                f"c = pred[] compare(q0, q2), direction={d}",
                f"x = {t}[] select(c, q0, q2)",
                f"y = {i}[] select(c, q1, q3)",
                f"r = ({t}[], {i}[]) tuple(x, y)",
            ]
            return [t, i], m.computation([t, i, t, i], rows)
        case "apart":  # several sums in one pass, each of its own type
            types = [m.pick(("pred", *NUMBERS)) for _ in range(m.number(2, 3))]
            n = len(types)
            ops = [m.pick(["add", "maximum", "minimum", "multiply"]) for _ in types]
            rows = [f"x{k} = {t}[] {ops[k]}(q{k}, q{k + n})" for k, t in enumerate(types)]
            named = ", ".join(f"x{k}" for k in range(n))
            rows.append(f"r = ({', '.join(f'{t}[]' for t in types)}) tuple({named})")
            return types, m.computation([*types, *types], rows)
        case "widen":  # in a wider type, and back
            t = m.pick(["f16", "bf16"])
            rows = [
                "a = f32[] convert(q0)",
                "b = f32[] convert(q1)",
                "s = f32[] add(a, b)",
                f"r = {t}[] convert(s)",
            ]
            return [t], m.computation([t, t], rows)
        case _:
            t = m.pick(("pred", *NUMBERS))
            return [t], m.simple(t)


WIDER = [("bf16", "f32"), ("f16", "f64"), ("s8", "s32"), ("u16", "u64"), ("f32", "bf16")]


def reduce(m: Any) -> None:
    types, by = reducer(m)
    kept_as = types
    if m.chance(0.15):  # kept in another type than the input's
        t, to = m.pick(WIDER)
        types, kept_as = [t], [to]
        by = m.simple(to)
    dims = m.dims(m.number(0, 4))
    axes = m.subset(len(dims))
    if m.chance(0.3):
        axes = axes[::-1]
    arrays = [m.parameter(t, dims) for t in types]
    starts = [m.parameter(t, ()) for t in kept_as]
    kept = [d for n, d in enumerate(dims) if n not in axes]
    listed = ",".join(map(str, axes))
    m.emit(
        joined([shape_of(t, kept) for t in kept_as]),
        f"reduce({', '.join([*arrays, *starts])}), dimensions={{{listed}}}, to_apply={by}",
    )


def window(m: Any, rank: int, most: int = 3) -> list[dict[str, int]]:
    """A window's dimensions: mostly plain, now and then with everything."""
    wild = m.chance(0.5)
    return [
        {
            "size": m.number(1, most),
            "stride": m.number(1, 3) if wild else 1,
            "low": m.number(-2, 3) if wild else m.number(0, 1),
            "high": m.number(-2, 3) if wild else m.number(0, 1),
            "spread": m.number(1, 3) if wild and m.chance(0.5) else 1,
            "apart": m.number(1, 3) if wild and m.chance(0.5) else 1,
        }
        for _ in range(rank)
    ]


def places(n: int, w: dict[str, int]) -> int | None:
    """How many windows fit; None where the padding takes away more than there is."""
    wide = ((n - 1) * w["spread"] + 1 if n else 0) + w["low"] + w["high"]
    reach = (w["size"] - 1) * w["apart"] + 1
    return None if wide < 0 else (wide - reach) // w["stride"] + 1 if wide >= reach else 0


def show(ws: list[dict[str, int]], reversal: Sequence[int] = ()) -> str:
    def x(key: str) -> str:
        return "x".join(str(w[key]) for w in ws)

    if not ws:
        return "window={}"
    pads = "x".join(f"{w['low']}_{w['high']}" for w in ws)
    more = f" rhs_reversal={'x'.join(map(str, reversal))}" if any(reversal) else ""
    return (
        f"window={{size={x('size')} stride={x('stride')} pad={pads} lhs_dilate={x('spread')} "
        f"rhs_dilate={x('apart')}{more}}}"
    )


def reduce_window(m: Any) -> None:
    types, by = reducer(m)
    dims = m.dims(m.number(0, 3), 6)
    while True:
        ws = window(m, len(dims))
        if m.chance(0.2) and dims:  # a running sum
            ws = [dict(size=1, stride=1, low=0, high=0, spread=1, apart=1) for _ in dims]
            d = m.number(0, len(dims) - 1)
            n = max(dims[d], 1)
            ws[d] |= {"size": n, "low" if m.chance(0.5) else "high": n - 1}
        out = [places(n, w) for n, w in zip(dims, ws, strict=True)]
        if None not in out:
            break
    arrays = [m.parameter(t, dims) for t in types]
    starts = [m.parameter(t, ()) for t in types]
    m.emit(
        joined([shape_of(t, [n or 0 for n in out]) for t in types]),
        f"reduce-window({', '.join([*arrays, *starts])}), {show(ws)}, to_apply={by}",
    )


def select_and_scatter(m: Any) -> None:
    t = m.pick(NUMBERS)
    dims = m.dims(m.number(1, 3), 6)
    while True:
        ws = window(m, len(dims))
        for w in ws:
            w["spread"] = 1
            w["low"], w["high"] = (min(w[k], w["size"] - 1) for k in ("low", "high"))
        out = [places(n, w) for n, w in zip(dims, ws, strict=True)]
        if None not in out:
            break
    direction = m.pick(["GE", "LE", "GT", "LT"])
    pair = m.pick(["q0, q1", "q1, q0"])
    select = m.computation([t, t], [f"r = pred[] compare({pair}), direction={direction}"])
    scatter = m.simple(t, m.pick(["add", "maximum", "multiply"]))
    x, source = m.parameter(t, dims), m.parameter(t, [n or 0 for n in out])
    start = m.parameter(t, ())
    m.emit(
        shape_of(t, dims),
        f"select-and-scatter({x}, {source}, {start}), {show(ws)}, select={select}, "
        f"scatter={scatter}",
    )


@pytest.mark.parametrize("generator", [reduce, reduce_window, select_and_scatter])
def test_agrees(agrees: Callable[..., None], generator: Callable[[Any], None]) -> None:
    agrees(generator, 18, simulated=2)
