"""Windows, gathers and sorts of random shapes against loops that follow the definitions."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.attributes import show_window
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.meaning.sort import merge_order
from nestwright.ir.hlo.nodes import WindowDim
from nestwright.ir.hlo.signatures import dilated, window_positions

SMALL = settings(max_examples=80, deadline=None)


@st.composite
def windows(draw: st.DrawFn, reverse: bool = False) -> WindowDim:
    return WindowDim(
        size=draw(st.integers(1, 3)),
        stride=draw(st.integers(1, 3)),
        pad_low=draw(st.integers(-1, 3)),
        pad_high=draw(st.integers(-1, 3)),
        lhs_dilate=draw(st.integers(1, 2)),
        rhs_dilate=draw(st.integers(1, 2)),
        reversal=reverse and draw(st.booleans()),
    )


def source(n: int, at: int, k: int, w: WindowDim) -> int | None:
    """The element that window ``at`` sees at its place ``k``, None outside or in a hole."""
    place = at * w.stride + k * w.rhs_dilate - w.pad_low
    if place < 0 or place % w.lhs_dilate or place // w.lhs_dilate >= n:
        return None
    return place // w.lhs_dilate


def fits(n: int, w: WindowDim) -> bool:
    return dilated(n, w.lhs_dilate) + w.pad_low + w.pad_high >= 0 and window_positions(n, w) > 0


@SMALL
@given(
    st.tuples(windows(True), windows(True)),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 4)]),
    st.integers(1, 2),
    st.integers(1, 2),
)
def test_convolution(
    window: tuple[WindowDim, WindowDim],
    space: tuple[int, int],
    groups: tuple[int, int],
    inputs: int,
    outputs: int,
) -> None:
    assume(all(fits(n, w) for n, w in zip(space, window, strict=True)))
    feature_groups, batch_groups = groups
    out_space = [window_positions(n, w) for n, w in zip(space, window, strict=True)]
    batch = 2 * batch_groups
    features = outputs * feature_groups * batch_groups
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (batch, *space, inputs * feature_groups)).astype(np.float32)
    w = rng.integers(-4, 5, (*(d.size for d in window), inputs, features)).astype(np.float32)
    out = np.zeros((2, *out_space, features), np.float32)
    for b, i, j, f in np.ndindex(out.shape):
        group = f // outputs
        first = group * inputs if feature_groups > 1 else 0
        row = b + 2 * group if batch_groups > 1 else b
        for ki, kj in product(range(window[0].size), range(window[1].size)):
            at = source(space[0], i, ki, window[0]), source(space[1], j, kj, window[1])
            if None in at:
                continue
            ri = window[0].size - 1 - ki if window[0].reversal else ki
            rj = window[1].size - 1 - kj if window[1].reversal else kj
            values = x[row, at[0], at[1], first : first + inputs]
            out[b, i, j, f] += values @ w[ri, rj, :, f]
    text = f"""HloModule m
ENTRY e {{
  x = f32[{",".join(map(str, x.shape))}] parameter(0)
  w = f32[{",".join(map(str, w.shape))}] parameter(1)
  ROOT c = convolution(x, w), dim_labels=b01f_01io->b01f, window={show_window(window)},
    feature_group_count={feature_groups}, batch_group_count={batch_groups}
}}"""
    np.testing.assert_array_equal(evaluate(parse(text), [x, w]), out)


@SMALL
@given(st.lists(st.tuples(windows(), st.integers(1, 7)), min_size=1, max_size=2), st.booleans())
def test_reduce_window(axes: list[tuple[WindowDim, int]], noncommutative: bool) -> None:
    """Also by a reducer that is associative only: the pair (first, last), as numbers."""
    assume(all(fits(n, w) for w, n in axes))
    window, shape = tuple(w for w, _ in axes), tuple(n for _, n in axes)
    x = np.random.default_rng(1).integers(1, 50, shape).astype(np.int32)
    body = "ROOT r = s32[] select(c, b, a)" if noncommutative else "ROOT r = s32[] add(a, b)"
    text = f"""HloModule m
last {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  z = s32[] constant(0)
  c = pred[] compare(b, z), direction=NE
  {body}
}}
ENTRY e {{
  x = s32[{",".join(map(str, shape))}] parameter(0)
  z = s32[] constant(0)
  ROOT r = reduce-window(x, z), window={show_window(window)}, to_apply=last
}}"""
    out = np.zeros([window_positions(n, w) for w, n in axes], np.int32)
    for at in np.ndindex(out.shape):
        for k in product(*(range(w.size) for w in window)):
            place = [source(n, a, o, w) for n, a, o, w in zip(shape, at, k, window, strict=True)]
            if None not in place:
                value = x[tuple(place)]  # type: ignore[arg-type]
                out[at] = value if noncommutative else out[at] + value
    np.testing.assert_array_equal(evaluate(parse(text), [x]), out)


@SMALL
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 3))
def test_merge_order_is_stable(row: list[int], columns: int) -> None:
    keys = np.stack([np.roll(row, c) for c in range(columns)], 1)

    def less(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return np.take_along_axis(keys, i, 0) < np.take_along_axis(keys, j, 0)

    expected = np.argsort(keys, axis=0, kind="stable")
    np.testing.assert_array_equal(merge_order(keys.shape, less), expected)


SORT = """HloModule m
by_two {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  lt = pred[] compare(a, b), direction=LT
  eq = pred[] compare(a, b), direction=EQ
  gt = pred[] compare(c, d), direction=GT
  tie = pred[] and(eq, gt)
  ROOT r = pred[] or(lt, tie)
}
by_key {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  x = s32[] abs(c)
  y = s32[] abs(d)
  ROOT r = pred[] compare(y, x), direction=KIND
}
ENTRY e {
  x = s32[N] parameter(0)
  y = s32[N] parameter(1)
  ROOT s = (s32[N], s32[N]) sort(x, y), dimensions={0}, is_stable=true, to_apply=COMPARE
}"""


@SMALL
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=30))
def test_sort_by_any_comparator(pairs: list[tuple[int, int]]) -> None:
    x, y = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
    text = SORT.replace("[N]", f"[{len(pairs)}]")

    def run(compare: str, kind: str) -> list[tuple[int, int]]:
        filled = text.replace("COMPARE", compare).replace("KIND", kind)
        a, b = evaluate(parse(filled), [x, y])
        return list(zip(a.tolist(), b.tolist(), strict=True))

    assert run("by_two", "LT") == sorted(pairs, key=lambda p: (p[0], -p[1]))
    assert run("by_key", "GT") == sorted(pairs, key=lambda p: abs(p[1]))
    assert run("by_key", "LT") == sorted(pairs, key=lambda p: -abs(p[1]))


@SMALL
@given(st.lists(st.sampled_from([np.nan, 0.0, 1.0, 2.0, 3.0]), min_size=1, max_size=40))
def test_a_sort_by_no_order_loses_nothing(values: list[float]) -> None:
    text = """HloModule m
by_float {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
ENTRY e {
  x = f32[N] parameter(0)
  y = s32[N] iota(), iota_dimension=0
  ROOT s = (f32[N], s32[N]) sort(x, y), dimensions={0}, to_apply=by_float
}"""
    x = np.array(values, np.float32)
    _, places = evaluate(parse(text.replace("[N]", f"[{len(x)}]")), [x])
    assert sorted(places.tolist()) == list(range(len(x)))  # NaN is neither before nor behind


@SMALL
@given(st.tuples(windows(), windows()), st.tuples(st.integers(2, 6), st.integers(2, 6)))
def test_select_and_scatter(window: tuple[WindowDim, WindowDim], shape: tuple[int, int]) -> None:
    plain = tuple(
        WindowDim(w.size, w.stride, min(max(w.pad_low, 0), w.size - 1), max(w.pad_high, 0))
        for w in window
    )
    assume(all(fits(n, w) for n, w in zip(shape, plain, strict=True)))
    out_shape = tuple(window_positions(n, w) for n, w in zip(shape, plain, strict=True))
    rng = np.random.default_rng(2)
    x = rng.integers(0, 4, shape).astype(np.float32)
    s = rng.integers(1, 9, out_shape).astype(np.float32)
    expected = np.full(shape, 0.5, np.float32)
    for at in np.ndindex(out_shape):
        best: tuple[int, ...] | None = None
        for k in product(*(range(w.size) for w in plain)):
            place = [source(n, a, o, w) for n, a, o, w in zip(shape, at, k, plain, strict=True)]
            if None in place:
                continue
            here = tuple(p for p in place if p is not None)
            if best is None or not x[best] >= x[here]:
                best = here
        if best is not None:
            expected[best] += s[at]
    text = f"""HloModule m
ge {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE }}
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }}
ENTRY e {{
  x = f32[{shape[0]},{shape[1]}] parameter(0)
  s = f32[{out_shape[0]},{out_shape[1]}] parameter(1)
  z = f32[] constant(0.5)
  ROOT r = select-and-scatter(x, s, z), window={show_window(plain)}, select=ge, scatter=add
}}"""
    np.testing.assert_array_equal(evaluate(parse(text), [x, s]), expected)
