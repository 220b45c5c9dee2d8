"""Taps of a convolution on padding and between dilated elements count for nothing, whatever the
weight there is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.plan.groups import fuse_module
from nestwright.ir.arrays import Array
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.holes import has_holes
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import WindowDim
from nestwright.ir.hlo.passes.pipeline import optimize

SPECIAL = np.array([np.inf, -np.inf, np.nan])


@dataclass(frozen=True)
class Case:
    """A convolution ``b01f_01io->b01f``; ``x`` and ``w`` have some special values."""

    x: Array
    w: Array
    window: tuple[WindowDim, ...]
    out: tuple[int, ...]
    groups: int = 1
    batch_groups: int = 1

    def text(self, dtype: str = "f32", epilogue: str = "") -> str:
        digits = "01"[: len(self.window)]
        columns = {
            "size": [str(d.size) for d in self.window],
            "stride": [str(d.stride) for d in self.window],
            "pad": [f"{d.pad_low}_{d.pad_high}" for d in self.window],
            "lhs_dilate": [str(d.lhs_dilate) for d in self.window],
            "rhs_dilate": [str(d.rhs_dilate) for d in self.window],
            "rhs_reversal": [str(int(d.reversal)) for d in self.window],
        }
        window = " ".join(f"{name}={'x'.join(values)}" for name, values in columns.items())
        return f"""HloModule c
ENTRY e {{
  x = {shape(dtype, self.x.shape)} parameter(0)
  w = {shape(dtype, self.w.shape)} parameter(1)
  c = {shape(dtype, self.out)} convolution(x, w), window={{{window}}},
    dim_labels=b{digits}f_{digits}io->b{digits}f, feature_group_count={self.groups},
    batch_group_count={self.batch_groups}
  two = {dtype}[] constant(2)
  twos = {shape(dtype, self.out)} broadcast(two), dimensions={{}}
  ROOT r = {shape(dtype, self.out)} {epilogue or "multiply"}(c, twos)
}}"""

    def right(self) -> Array:
        """Tap by tap, in f64, times two."""
        out = np.zeros(self.out)
        depth = self.w.shape[-2]
        taps = [range(d.size) for d in self.window]
        for at in np.ndindex(self.out):
            b, f = at[0], at[-1]
            b += f // (self.out[-1] // self.batch_groups) * self.out[0]
            first = f // (self.out[-1] // self.groups) * depth
            for k in itertools.product(*taps):
                place = []
                for o, tap, d, size in zip(
                    at[1:-1], k, self.window, self.x.shape[1:-1], strict=True
                ):
                    p = o * d.stride + tap * d.rhs_dilate - d.pad_low
                    if p % d.lhs_dilate == 0 and 0 <= p // d.lhs_dilate < size:
                        place.append(p // d.lhs_dilate)
                if len(place) < len(k):
                    continue
                own = tuple(
                    d.size - 1 - tap if d.reversal else tap
                    for tap, d in zip(k, self.window, strict=True)
                )
                for i in range(depth):
                    left, right = self.x[(b, *place, first + i)], self.w[(*own, i, f)]
                    out[at] += float(left) * float(right)
        return out * 2


def shape(dtype: str, dims: tuple[int, ...]) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


def draw(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    while True:
        window, space, out = [], [], []
        for _ in range(int(rng.integers(1, 3))):
            low, high = (int(v) for v in rng.integers(-1, 4, 2))
            size, stride, apart = (int(v) for v in rng.integers(1, [4, 3, 3]))
            w = WindowDim(
                size, stride, low, high, int(rng.choice([1, 1, 2, 3])), apart, rng.random() < 0.3
            )
            n = int(rng.integers(1, 7))
            reach = (n - 1) * w.lhs_dilate + 1 + low + high - (size - 1) * apart
            window.append(w)
            space.append(n)
            out.append(max(0, (reach - 1) // stride + 1))
        if all(out):
            break
    depth, groups, batch_groups = int(rng.integers(1, 4)), 1, 1
    batch, features = int(rng.integers(1, 3)), int(rng.integers(1, 5))
    match seed % 4:
        case 1:
            groups = int(rng.integers(2, 4))
            features = groups * int(rng.integers(1, 3))
        case 2:  # depthwise
            depth, groups = 1, int(rng.integers(2, 9))
            features = groups
        case 3:
            batch_groups, features = 2, 2 * int(rng.integers(1, 3))
    x = rng.integers(-3, 4, (batch * batch_groups, *space, depth * groups)).astype(np.float32)
    w = rng.integers(-3, 4, (*(d.size for d in window), depth, features)).astype(np.float32)
    for array, count in ((x, rng.integers(0, 2)), (w, rng.integers(0, 4))):
        for _ in range(int(count)):
            array[tuple(rng.integers(0, array.shape))] = rng.choice(SPECIAL)
    return Case(x, w, tuple(window), (batch, *out, features), groups, batch_groups)


@pytest.mark.parametrize("seed", range(24))
def test_holes_count_for_nothing(seed: int) -> None:
    """Interpreter, weights as arguments, weights frozen: all as defined."""
    with np.errstate(all="ignore"):
        case = draw(seed)
        wanted = case.right()
    module = parse(case.text())
    np.testing.assert_array_equal(evaluate(module, [case.x, case.w]), wanted)
    if seed % 2:
        found = nw.build(module, cache=False)(case.x, case.w)
    else:
        found = nw.build(module, cache=False, constants={"w": case.w})(case.x)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("seed", [40, 41, 42, 43])
def test_holes_count_for_nothing_on_a_gpu(seed: int) -> None:
    with np.errstate(all="ignore"):
        case = draw(seed)
        case.w.flat[0] = np.inf
        wanted = case.right()
    module = parse(case.text())
    found = nw.build(module, target="cuda-sim -arch=sm_80", cache=False)(case.x, case.w)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16"])
def test_other_types(dtype: str) -> None:
    kind = {"f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype]
    x, w = np.ones((1, 4, 2), kind), np.full((3, 2, 3), 2, kind)
    w[0, 0, 0], w[2, 1, 2] = np.inf, np.nan
    case = Case(x, w, (WindowDim(3, pad_low=1, pad_high=1),), (1, 4, 3))
    wanted = case.right()
    assert np.isfinite(wanted[0, 0, 0]) and np.isnan(wanted[0, 0, 2])
    module = parse(case.text(dtype))
    for found in (evaluate(module, [x, w]), nw.build(module, cache=False)(x, w)):
        np.testing.assert_array_equal(np.asarray(found, np.float64), wanted)


def test_the_same_executable_serves_finite_and_other_weights() -> None:
    case = draw(4)
    exe = nw.build(parse(case.text()), cache=False)
    rng = np.random.default_rng(0)
    for special in (False, True, False):
        w = rng.integers(-3, 4, case.w.shape).astype(np.float32)
        w.flat[0] = np.inf if special else 1
        with np.errstate(all="ignore"):
            wanted = Case(case.x, w, case.window, case.out).right()
        np.testing.assert_array_equal(exe(case.x, w), wanted)


def test_finite_constants_need_no_guard() -> None:
    """The convolution of frozen, finite weights is one kernel, and no second form is compiled."""
    x, w = np.ones((1, 8, 4), np.float32), np.ones((3, 4, 4), np.float32)
    case = Case(x, w, (WindowDim(3, pad_low=1, pad_high=1),), (1, 8, 4))
    module = parse(case.text())
    free = fuse_module(optimize(module))
    assert len(free.guards) == 1 and len(free.extra) == 2
    frozen = nw.build(module, cache=False, constants={"w": w})
    assert "always" not in frozen.as_text("plan")
    chosen = nw.build(module, cache=False).as_text("plan")
    assert ".test" in chosen and ".always" in chosen
    w = w.copy()
    w[0, 0, 0] = np.nan
    never = nw.build(module, cache=False, constants={"w": w}).as_text("plan")
    assert ".always" in never and ".test" not in never


@pytest.mark.parametrize(
    ("window", "size", "count", "holes"),
    [
        (WindowDim(3), 8, 6, False),
        (WindowDim(3, pad_low=1), 8, 7, True),
        (WindowDim(3, pad_high=1), 8, 7, True),
        (WindowDim(3, stride=2, pad_high=1), 8, 3, False),  # the last place is not reached
        (WindowDim(3, stride=2, pad_high=1), 8, 4, True),
        (WindowDim(3, pad_low=-1, pad_high=-1), 8, 4, False),
        (WindowDim(2, stride=2, lhs_dilate=2, rhs_dilate=2), 8, 7, False),
        (WindowDim(2, stride=2, lhs_dilate=2), 8, 7, True),
        (WindowDim(1, stride=1, lhs_dilate=2), 8, 15, True),
        (WindowDim(1, stride=2, lhs_dilate=2, pad_low=-1), 8, 7, True),
        (WindowDim(1), 1, 1, False),
    ],
)
def test_where_holes_are(window: WindowDim, size: int, count: int, holes: bool) -> None:
    assert has_holes(window, size, count) == holes
    taken = {
        o * window.stride + k * window.rhs_dilate - window.pad_low
        for o in range(count)
        for k in range(window.size)
    }
    elements = {n * window.lhs_dilate for n in range(size)}
    assert (not taken <= elements) == holes


def test_a_pad_of_zeros_that_joins_a_window_is_skipped_as_well() -> None:
    """As in XLA: the pass folds the pad, the interpreter multiplies what the model says."""
    text = """HloModule p
ENTRY e {
  x = f32[1,4,1] parameter(0)
  w = f32[3,1,1] parameter(1)
  zero = f32[] constant(0)
  p = f32[1,6,1] pad(x, zero), padding=0_0x1_1x0_0
  ROOT c = f32[1,4,1] convolution(p, w), window={size=3}, dim_labels=b0f_0io->b0f
}"""
    module = parse(text)
    x, w = np.ones((1, 4, 1), np.float32), np.array([np.inf, 1, 1], np.float32).reshape(3, 1, 1)
    assert np.isnan(evaluate(module, [x, w])[0, 0, 0])
    found = nw.build(module, cache=False)(x, w)
    np.testing.assert_array_equal(found.ravel(), [2, np.inf, np.inf, np.inf])


EPILOGUES = {
    "add(c, c)": True,
    "maximum(c, zeros)": True,
    "tanh(c)": True,
    "select(positive, c, zeros)": False,
    "sign(c)": False,
    "round-nearest-even(c)": False,
}
"""What follows the convolution; whether a NaN of it is sure to show."""


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("special", [1.0, np.inf, np.nan])
def test_results_are_looked_at_where_they_show_it(epilogue: str, special: float) -> None:
    """Weights that are larger than the results: what is looked at does not change what comes."""
    text = f"""HloModule h
ENTRY e {{
  x = f32[1,2,8] parameter(0)
  w = f32[3,8,8] parameter(1)
  y = f32[1,2,8] parameter(2)
  c = f32[1,2,8] convolution(x, w), window={{size=3 pad=1_1}}, dim_labels=b0f_0io->b0f
  zero = f32[] constant(0)
  zeros = f32[1,2,8] broadcast(zero), dimensions={{}}
  positive = pred[1,2,8] compare(c, zeros), direction=GT
  r = f32[1,2,8] {epilogue}
  ROOT s = f32[1,2,8] add(r, y)
}}"""
    module = parse(text)
    (found,) = fuse_module(optimize(module)).guards.values()
    assert found.tests[0].after == EPILOGUES[epilogue]
    exe = nw.build(module, cache=False)
    rng = np.random.default_rng(0)
    x, y = rng.integers(-3, 4, (2, 1, 2, 8)).astype(np.float32)
    w = rng.integers(-3, 4, (3, 8, 8)).astype(np.float32)
    w[0, 0, 0] = w[2, 1, 5] = special
    kept = [a.copy() for a in (x, w, y)]
    for given in (x, np.where(x == 3, np.float32(np.nan), x)):
        np.testing.assert_array_equal(exe(given, w, y), evaluate(module, [given, w, y]))
    for a, b in zip((x, w, y), kept, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(exe(x, w, y, out=y), evaluate(module, kept))
