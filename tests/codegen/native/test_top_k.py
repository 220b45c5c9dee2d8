"""Top-k against the interpreter: insertion, selection and chunks, for every type and order."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.dtypes import ALL, BY_NAME, DType, f32, s16, to_numpy
from nestwright.ir.formats import is_narrow
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target

TEXT = """HloModule m
ENTRY e {{
  x = {t}[{dims}] parameter(0)
  ROOT t = ({t}[{kept}], s32[{kept}]) topk(x), k={k}, largest={largest}
}}
"""
# What code depends on: the width of a value, and how a type's bits are ordered.
KINDS = [BY_NAME[n] for n in ("pred", "s4", "u8", "s16", "u32", "s64", "f8e4m3fn", "bf16", "f64")]
# Every code of a narrow float, and how they are ordered: test_narrow.py.
REST = [t for t in ALL if not (t in KINDS or t.kind == "complex" or (is_narrow(t) and t.is_float))]
# by insertion, by selection, whole where rows are short, of chunks (whole and not), of several
# runs, of all, of nothing
ROWS = [
    ((3, 61), 0),
    ((3, 61), 1),
    ((3, 61), 13),
    ((3, 16), 5),
    ((3, 300), 13),
    ((2, 290), 101),
    ((5, 99), 33),
    ((2, 640), 2),
    ((2, 2, 645), 3),
    ((4, 1300), 601),
    ((2, 61), 60),
    ((2, 61), 61),
    ((40007,), 40),
    ((1, 1), 1),
    ((0, 500), 40),
    ((3, 0), 0),
]


def module(t: DType, dims: tuple[int, ...], k: int, largest: bool) -> str:
    kept = ",".join(map(str, (*dims[:-1], k)))
    of = {"t": t, "k": k, "kept": kept, "largest": str(largest).lower()}
    return TEXT.format(dims=",".join(map(str, dims)), **of)


def few_values(t: DType, dims: tuple[int, ...]) -> np.ndarray:
    """Many ties; every bit pattern of a narrow type, of a wide one what is special among them."""
    rng, size = np.random.default_rng(5), int(np.prod(dims))
    if t.kind == "pred":
        return rng.integers(0, 2, dims).astype(bool)
    to = np.dtype(to_numpy(t))
    if is_narrow(t):
        return rng.integers(0, 1 << t.bits, size).astype(np.uint8).view(to).reshape(dims)
    if t.is_int:
        ends = np.iinfo(to)
        return rng.choice(np.array([ends.min, ends.max, 0, 1, 2, 77], to), dims)
    nan = np.array(np.nan, to)
    some = [-np.inf, -2.0, -0.0, 0.0, 0.5, 3.0, 1e-7, np.inf]
    return rng.choice(np.array([*some, nan, -nan], to), dims)


def same(t: DType, dims: tuple[int, ...], k: int, largest: bool, target: str, *xs: object) -> None:
    made = parse(module(t, dims, k, largest))
    run = nw.build(made, target=Target.parse(target))
    for x in xs:
        for a, b in zip(run(x), evaluate(made, [x]), strict=True):
            assert np.asarray(a).shape == np.shape(b)
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("t", REST, ids=str)
def test_every_other_type(t: DType) -> None:
    same(t, (3, 90), 20, False, "cpu", few_values(t, (3, 90)))


@pytest.mark.parametrize("t", KINDS, ids=str)
def test_chunks_of_every_kind(t: DType) -> None:
    same(t, (2, 1003), 5, True, "cpu", few_values(t, (2, 1003)))


@pytest.mark.parametrize(("dims", "k"), [((3, 61), 13), ((2, 640), 2), ((40007,), 40)])
def test_one_thread_does_the_same(dims: tuple[int, ...], k: int) -> None:
    x = np.random.default_rng(3).standard_normal(dims).astype(np.float32)
    same(f32, dims, k, True, "cpu -threads=1", x)


@pytest.mark.parametrize(("dims", "k"), ROWS)
def test_every_way(dims: tuple[int, ...], k: int) -> None:
    rng = np.random.default_rng(3)
    same(f32, dims, k, True, "cpu", rng.standard_normal(dims).astype(np.float32))
    if ROWS.index((dims, k)) % 2 == 0:
        same(f32, dims, k, False, "cpu", few_values(f32, dims))
    else:
        same(s16, dims, k, True, "cpu", np.sort(rng.integers(-999, 999, dims).astype(np.int16)))


@pytest.mark.parametrize(("n", "k"), [(5000, 20), (700, 100), (700, 300)])
def test_all_alike(n: int, k: int) -> None:
    alike = [np.full(n, value, np.float32) for value in (0.0, -0.0, np.nan, -np.inf, 1.0)]
    same(f32, (n,), k, True, "cpu", *alike)
    same(f32, (n,), k, False, "cpu", *alike)


def test_what_comes_before_is_fused() -> None:
    made = parse("""HloModule m
ENTRY e {
  x = f32[700,6] parameter(0)
  y = f32[6,700] transpose(x), dimensions={1,0}
  n = f32[6,700] negate(y)
  ROOT t = (f32[6,50], s32[6,50]) topk(n), k=50, largest=true
}
""")
    x = few_values(f32, (700, 6))
    for a, b in zip(nw.build(made)(x), evaluate(made, [x]), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(("dims", "k"), [((3, 100), 30), ((645,), 3)])
def test_gpu_code_means_the_same(dims: tuple[int, ...], k: int) -> None:
    """As the simulator runs it."""
    same(f32, dims, k, True, "cuda-sim -arch=sm_80", few_values(f32, dims))
