"""Running reductions along rows: chains of rows, segments of a row, the tail of either."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import nestwright as nw
from nestwright.ir import hlo
from nestwright.ir.arrays import Array
from nestwright.te.from_hlo import scans

SCAN = """\
HloModule scan
combine {{
  a = {dtype}[] parameter(0)
  b = {dtype}[] parameter(1)
  ROOT c = {dtype}[] {op}(a, b)
}}
ENTRY e {{
  x = {dtype}[{dims}] parameter(0)
  {element}
  z = {dtype}[] constant({first})
  ROOT y = {dtype}[{dims}] reduce-window(u, z), window={{size={size} pad={pad}}}, to_apply=combine
}}
"""
NUMPY = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
TYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "s64": np.int64,
    "s32": np.int32,
    "s8": np.int8,
    "u8": np.uint8,
}


def scan_text(
    dims: tuple[int, ...],
    dim: int,
    backward: bool = False,
    dtype: str = "f32",
    op: str = "add",
    first: str = "0",
    element: str = "copy(x)",
) -> str:
    wide = [dims[dim] if n == dim else 1 for n in range(len(dims))]
    edge = f"0_{dims[dim] - 1}" if backward else f"{dims[dim] - 1}_0"
    pads = [edge if n == dim else "0_0" for n in range(len(dims))]
    shape = ",".join(map(str, dims))
    return SCAN.format(
        dtype=dtype,
        op=op,
        dims=shape,
        first=first,
        element=f"u = {dtype}[{shape}] {element}",
        size="x".join(map(str, wide)),
        pad="x".join(pads),
    )


def expected(x: Array, dim: int, backward: bool, op: str) -> Array:
    turned = np.flip(x, dim) if backward else x
    found = NUMPY[op].accumulate(turned, dim)
    return np.flip(found, dim) if backward else found


SHAPES = {
    "a row": ((1000,), 0),
    "one element": ((1,), 0),
    "a short tail": ((3, 17), 1),
    "as many rows as chains": ((8, 40), 1),
    "one row more": ((9, 33), 1),
    "few rows of leading axes": ((2, 1, 5, 31), 3),
    "many rows of leading axes": ((3, 21, 13), 2),
    "units behind": ((19, 24, 1, 1), 1),
    "rows of one": ((70, 1), 1),
    "no rows": ((0, 7), 1),
    "a long row": ((16 * 1024 + 3,), 0),
    "a row of whole segments": ((64 * 2048,), 0),
    "a row of nearly whole segments": ((64 * 2048 - 1,), 0),
    "two long rows": ((2, 30011), 1),
    "long rows in the middle": ((3, 40000, 1), 1),
}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_sums_of_whole_numbers(name: str, backward: bool) -> None:
    dims, dim = SHAPES[name]
    x = np.random.default_rng(0).integers(-9, 9, dims).astype(np.float32)
    exe = nw.build(hlo.parse(scan_text(dims, dim, backward)))
    assert np.array_equal(exe(x), expected(x, dim, backward, "add"))


@pytest.mark.parametrize(
    ("dtype", "op", "dims"),
    [
        *((dtype, op, (11, 37)) for dtype in TYPES for op in NUMPY),
        *((dtype, op, (20000,)) for dtype in ("f64", "u8") for op in ("add", "minimum")),
        *((dtype, op, (20000,)) for dtype in ("bf16", "s32") for op in ("multiply", "maximum")),
    ],
)
def test_types_and_operations(dtype: str, op: str, dims: tuple[int, ...]) -> None:
    """Whole numbers are exact in every type; products are of 1 and -1, integers wrap around."""
    rng, kind = np.random.default_rng(1), TYPES[dtype]
    x = rng.choice([1, -1] if op == "multiply" else [-3, -1, 0, 2, 3], dims)
    if dtype in ("f16", "bf16"):  # sums stay in the range that is exact
        x = np.where(np.arange(x.size).reshape(dims) % 2, 1, -1) if op == "add" else x
    x = x.astype(kind)
    lowest = {"add": "0", "multiply": "1"}.get(op, "1" if op == "maximum" else "-1")
    lowest = lowest.lstrip("-") if dtype == "u8" else lowest
    exe = nw.build(hlo.parse(scan_text(dims, len(dims) - 1, dtype=dtype, op=op, first=lowest)))
    with np.errstate(over="ignore"):
        started = NUMPY[op](kind(int(lowest)), expected(x, len(dims) - 1, False, op))
    assert np.array_equal(exe(x), started.astype(kind))


@pytest.mark.parametrize("op", ["maximum", "minimum", "add"])
@pytest.mark.parametrize("dims", [(9, 50), (17000,)])
def test_nan_and_infinity_go_on(dims: tuple[int, ...], op: str) -> None:
    x = np.random.default_rng(2).standard_normal(dims).astype(np.float32)
    x.reshape(-1)[[31, math.prod(dims) - 3]] = np.inf, np.nan
    first = {"maximum": "-inf", "minimum": "inf", "add": "0"}[op]
    exe = nw.build(hlo.parse(scan_text(dims, len(dims) - 1, op=op, first=first)))
    want = expected(x, len(dims) - 1, False, op)
    np.testing.assert_allclose(exe(x), want, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_an_initial_value_counts_once() -> None:
    for dims in ((5, 12), (18000,)):
        x = np.ones(dims, np.float32)
        exe = nw.build(hlo.parse(scan_text(dims, len(dims) - 1, first="100")))
        assert np.array_equal(exe(x), 100 + np.cumsum(x, -1))


def test_elements_may_be_computed() -> None:
    """An element that is much code is written once for each chain, and not once for each step."""
    for dims in ((30, 100), (20000,)):
        x = np.random.default_rng(3).standard_normal(dims).astype(np.float32)
        exe = nw.build(hlo.parse(scan_text(dims, len(dims) - 1, element="logistic(x)")))
        want = np.cumsum(1 / (1 + np.exp(-x.astype(np.float64))), -1)
        np.testing.assert_allclose(exe(x), want, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "length", "count"),
    [(1, 1000, 1), (1, 16384, 8), (1, 1 << 20, 64), (3, 1 << 20, 16), (16, 1 << 20, 1)],
)
def test_few_long_rows_have_segments(rows: int, length: int, count: int) -> None:
    assert scans._segments(rows, length) == count


@pytest.mark.parametrize(
    ("dims", "dtype", "op", "backward"),
    [
        ((41,), "f32", "add", False),
        ((3, 47), "s32", "add", True),
        ((2, 1, 60), "bf16", "maximum", False),
        ((5, 40), "f32", "minimum", True),
        ((70, 3), "f32", "add", False),
    ],
)
def test_a_gpu_takes_many_segments(
    monkeypatch: pytest.MonkeyPatch, dims: tuple[int, ...], dtype: str, op: str, backward: bool
) -> None:
    """Each has a thread; what is before it is reduced side by side, the same in every order."""
    for name, value in {"LANES": 32, "LONGEST_ROW": 40, "SHORTEST_LANE": 4}.items():
        monkeypatch.setattr(scans, name, value)
    dim, kind = len(dims) - 1 if dims[-1] > 3 else 0, TYPES[dtype]
    x = np.random.default_rng(4).integers(-3, 3, dims).astype(kind)
    first = {"add": "0", "maximum": "-9", "minimum": "9"}[op]
    text = scan_text(dims, dim, backward, dtype, op, first)
    exe = nw.build(hlo.parse(text), target="cuda-sim -arch=sm_80", cache=False)
    for seed in ("0", "5"):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        assert np.array_equal(exe(x), expected(x, dim, backward, op))


def test_a_gpu_passes_on_nan_and_infinity() -> None:
    x = np.random.default_rng(2).integers(-3, 3, 2500).astype(np.float32)
    x[[31, 1700]] = np.inf, np.nan
    exe = nw.build(hlo.parse(scan_text((2500,), 0)), target="cuda-sim -arch=sm_80", cache=False)
    assert len(exe.as_text("plan").split("call ")) == 2
    np.testing.assert_array_equal(exe(x), expected(x, 0, False, "add"))


@pytest.mark.parametrize(
    ("rows", "length", "count"),
    [(1, 2047, 1), (1, 2048, 32), (1, 1 << 20, 4096), (3, 1000003, 1365), (5000, 1 << 20, 1)],
)
def test_segments_of_threads(rows: int, length: int, count: int) -> None:
    assert scans._lanes(rows, length) == count
    size = -(-length // count)
    assert 0 < length - (count - 1) * size <= size
