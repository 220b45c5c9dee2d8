"""8-bit floats converted in pairs, as GPUs from sm_89 on do: models of them, and PTX."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, DType, f32, to_numpy
from nestwright.ir.loop.parser import parse
from nestwright.ir.target import Target

PAIRED = [BY_NAME["f8e4m3fn"], BY_NAME["f8e5m2"]]
LANES = [1, 4]
CASTS = """
@func(outputs=1)
def casts(X: {source}[{size}], Y: {to}[{size}]):
    for t in thread("threadIdx.x", {threads}):
        for v in {loop}({lanes}):
            Y[t * {lanes} + v] = cast({to}, X[t * {lanes} + v])
"""


def text(source: DType, to: DType, lanes: int, size: int) -> str:
    loop = "vectorize" if lanes > 1 else "range"
    return CASTS.format(
        source=source, to=to, lanes=lanes, size=size, threads=size // lanes, loop=loop
    )


def cast(x: Array, source: DType, to: DType, lanes: int) -> Array:
    func = parse(text(source, to, lanes, x.size))
    return Kernel(compile_flat(func, Target.parse("cuda-sim -arch=sm_89")))(x)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", PAIRED, ids=str)
def test_every_code(dtype: DType, lanes: int) -> None:
    codes = np.arange(256, dtype=np.uint8).view(to_numpy(dtype))
    wide = cast(codes, dtype, f32, lanes)
    np.testing.assert_array_equal(wide, codes.astype(np.float32))
    kept = ~np.isnan(wide)
    np.testing.assert_array_equal(np.signbit(wide)[kept], (codes.view("u1") > 127)[kept])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", PAIRED, ids=str)
def test_rounding_overflow_and_nan(dtype: DType, lanes: int) -> None:
    """The numbers, the middles and their neighbors; beyond the largest, what HLO has there."""
    codes = np.arange(128, dtype=np.uint8).view(to_numpy(dtype)).astype(np.float32)
    known = codes[np.isfinite(codes)]
    step = known[-1] - known[-2]
    ties = np.append((known[1:] + known[:-1]) / 2, known[-1] + step / 2)
    near = [np.nextafter(ties, np.float32(s)) for s in (-np.inf, np.inf)]
    far = [known[-1] + step, 3e38, np.inf, np.nan, 1e-40]
    x = np.concatenate([known, ties, *near, np.array(far, np.float32)]).astype(np.float32)
    x = np.resize(np.concatenate([x, -x]), 512)
    got, want = cast(x, f32, dtype, lanes), x.astype(to_numpy(dtype))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), np.isnan(want.astype("f4")))
    sure = ~np.isnan(x)
    np.testing.assert_array_equal(got.view("u1")[sure], want.view("u1")[sure])


@pytest.mark.parametrize("arch", ["sm_89", "sm_100a"])
@pytest.mark.parametrize("dtype", PAIRED, ids=str)
def test_pairs_are_converted_by_instructions(dtype: DType, arch: str) -> None:
    target, kind = Target.parse(f"cuda -arch={arch}"), str(dtype)[2:6]
    narrow, wide = (
        nvptx.compile(emit(parse(text(*types, 4, 64)), target), target)
        for types in ((f32, dtype), (dtype, f32))
    )
    assert narrow.count(f"cvt.rn.satfinite.{kind}x2.f32") == 2
    assert wide.count(f"cvt.rn.f16x2.{kind}x2") == 2
    older = Target.parse("cuda -arch=sm_80")
    assert "satfinite.e" not in nvptx.compile(emit(parse(text(f32, dtype, 4, 64)), older), older)
    if ptxas.find() is not None:
        for ptx in (narrow, wide):
            ptxas.assemble(ptx, arch)


CLAMPED = """
@func(outputs=1)
def clamped(X: f32[64], Y: {to}[64]):
    for t in thread("threadIdx.x", 16):
        for v in vectorize(4):
            Y[t * 4 + v] = cast({to}, {value})
"""


@pytest.mark.parametrize(
    ("low", "high", "form", "checked"),
    [
        (-448, 448, "clamp(f32({low}), {x}, f32({high}))", False),
        (-448, 448, "min(max({x}, f32({low})), f32({high}))", False),
        (-464, 480, "clamp(f32({low}), {x}, f32({high}))", True),
        (-448, 448, "min({x}, f32({high}))", True),
    ],
)
def test_numbers_that_are_clamped_are_not_checked_again(
    low: int, high: int, form: str, checked: bool
) -> None:
    value = form.format(low=f"{low}.0", high=f"{high}.0", x="X[t * 4 + v]")
    func = parse(CLAMPED.format(to="f8e4m3fn", value=value))
    x = np.concatenate([np.linspace(-500, 500, 60), [np.nan, np.inf, -np.inf, 0]]).astype("f4")
    got = Kernel(compile_flat(func, Target.parse("cuda-sim -arch=sm_89")))(x).astype("f4")
    most = x if "min({x}" in form else np.maximum(x, np.float32(low))
    want = np.minimum(most, np.float32(high)).astype(to_numpy(BY_NAME["f8e4m3fn"])).astype("f4")
    np.testing.assert_array_equal(got, want)
    target = Target.parse("cuda -arch=sm_89")
    assert ("select" in emit(func, target)) == checked
