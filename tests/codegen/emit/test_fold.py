"""What the emitter folds is what LLVM's instructions give: against NumPy's integers."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.emit.llvm.builder import IRBuilder
from nestwright.codegen.emit.llvm.core import IRValue
from nestwright.codegen.emit.llvm.fold import lane_literals
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import BY_NAME, DType, pred, to_numpy
from nestwright.ir.target import Target

WHOLE = [BY_NAME[f"{kind}{bits}"] for kind in "su" for bits in (8, 16, 32, 64)]
LANES = 16
BUILDER = IRBuilder(Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"))


def numbers(dtype: DType, seed: int) -> Array:
    """Numbers of a type, its least, largest and those around 0 among them."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(to_numpy(dtype))
    ends = np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1], to_numpy(dtype))
    some = rng.integers(info.min, info.max, 8, to_numpy(dtype), endpoint=True)
    return rng.permutation(np.concatenate([ends, some, rng.integers(0, 7, 2, to_numpy(dtype))]))


def vector(a: Array, dtype: DType) -> IRValue:
    return BUILDER.const_lanes([int(x) for x in a], dtype, len(a))


def folded(x: IRValue) -> list[int] | None:
    known = lane_literals(x)
    return None if known is None else list(known)


def as_signed(a: Array) -> Array:
    return a.view(f"i{a.dtype.itemsize}")


def as_unsigned(a: Array) -> Array:
    return a.view(f"u{a.dtype.itemsize}")


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_arithmetic_is_folded_as_it_is_computed(dtype: DType) -> None:
    for seed in range(20):
        a, b = numbers(dtype, seed), numbers(dtype, seed + 100)
        x, y = vector(a, dtype), vector(b, dtype)
        with np.errstate(over="ignore"):
            want = {"add": a + b, "sub": a - b, "mul": a * b, "and": a & b, "or": a | b}
        for name, right in (want | {"xor": a ^ b}).items():
            assert folded(BUILDER.binary(name, x, y)) == right.tolist(), name
        shift = np.abs(b.astype(np.int64) % dtype.bits).astype(a.dtype)
        by = vector(shift, dtype)
        shifted = {
            "shl": as_unsigned(a) << as_unsigned(shift),
            "lshr": as_unsigned(a) >> as_unsigned(shift),
            "ashr": as_signed(a) >> as_signed(shift),
        }
        for name, right in shifted.items():
            assert folded(BUILDER.binary(name, x, by)) == right.view(a.dtype).tolist(), name


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_quotients_are_folded_where_they_are_defined(dtype: DType) -> None:
    for seed in range(20):
        a, b = numbers(dtype, seed), numbers(dtype, seed + 100)
        b = np.where(b == 0, 3, b).astype(a.dtype)
        x, y = vector(a, dtype), vector(b, dtype)
        natural = zip(as_unsigned(a).tolist(), as_unsigned(b).tolist(), strict=True)
        right = [(n // d, n % d) for n, d in natural]
        for name, part in (("udiv", 0), ("urem", 1)):
            want = np.array([r[part] for r in right], f"u{a.dtype.itemsize}").view(a.dtype)
            assert folded(BUILDER.binary(name, x, y)) == want.tolist(), name
        signed = list(zip(as_signed(a).tolist(), as_signed(b).tolist(), strict=True))
        least = (-(1 << (dtype.bits - 1)), -1)  # overflows: never emitted (``_safe_divisor``)
        for name in ("sdiv", "srem"):
            got = folded(BUILDER.binary(name, x, y))
            for (n, d), found in zip(signed, got or [], strict=True):
                if (n, d) != least:
                    quotient = abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1)
                    value = quotient if name == "sdiv" else n - d * quotient
                    assert found == np.array(value, f"i{a.dtype.itemsize}").view(a.dtype)
        zero = vector(np.zeros_like(a), dtype)
        for name in ("sdiv", "udiv", "srem", "urem"):
            assert folded(BUILDER.binary(name, x, zero)) is None


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_comparisons_selections_and_casts_are_folded(dtype: DType) -> None:
    tests = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
    for seed in range(20):
        a, b = numbers(dtype, seed), numbers(dtype, seed + 100)
        x, y = vector(a, dtype), vector(b, dtype)
        for name, test in tests.items():
            for sign, view in (("s", as_signed), ("u", as_unsigned)):
                right = test(view(a), view(b)).astype(int).tolist()
                assert folded(BUILDER.compare(sign + name, x, y)) == right
        less = BUILDER.compare("eq" if seed % 2 else "ne", x, y)
        where = (a == b) if seed % 2 else (a != b)
        assert folded(less) == where.astype(int).tolist()
        assert folded(BUILDER.select(less, x, y)) == np.where(where, a, b).tolist()
        assert folded(BUILDER.negate_pred(less)) == (~where).astype(int).tolist()
        for to in WHOLE:
            kind = to_numpy(to)
            if to.bits < dtype.bits:
                assert folded(BUILDER.cast("trunc", x, to)) == a.astype(kind).tolist()
            elif to.bits > dtype.bits:
                sext, zext = as_signed(a).astype(kind), as_unsigned(a).astype(kind)
                assert folded(BUILDER.cast("sext", x, to)) == sext.tolist()
                assert folded(BUILDER.cast("zext nneg", x, to)) == zext.tolist()
        assert folded(BUILDER.cast("zext", less, dtype)) == where.astype(int).tolist()
        assert folded(BUILDER.cast("sext", less, dtype)) == (-where.astype(a.dtype)).tolist()


def test_lanes_that_agree_are_one_literal() -> None:
    x = BUILDER.iota(BY_NAME["s64"], LANES)
    assert BUILDER.compare("slt", x, BUILDER.like(LANES, x)).literal is True
    assert BUILDER.any_lane(BUILDER.compare("slt", x, BUILDER.like(0, x))).literal is False
    first = BUILDER.first_lanes(3, LANES)
    assert BUILDER.lane(first, 2).literal is True and BUILDER.lane(first, 3).literal is False
    assert first.dtype == pred and BUILDER.any_lane(first).literal is True
