"""``out=``: the caller's arrays get the results, from native code where they are plain arrays."""

from __future__ import annotations

import gc
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.runtime.executable import Executable
from nestwright.ir.errors import ArgumentError

from .caches import state, stepped, text

ONE = """HloModule one
ENTRY e {{
  x = {dtype}[{n}] parameter(0)
  y = {dtype}[{n}] parameter(1)
  ROOT sum = {dtype}[{n}] add(x, y)
}}
"""
TWO = """HloModule two
ENTRY e {
  x = f32[6,5] parameter(0)
  y = s32[7] parameter(1)
  double = f32[6,5] add(x, x)
  square = s32[7] multiply(y, y)
  ROOT both = (f32[6,5], s32[7]) tuple(double, square)
}
"""
X, Y = np.arange(30, dtype=np.float32).reshape(6, 5), np.arange(7, dtype=np.int32)


def one(dtype: str = "f32", n: int = 8) -> Executable:
    return nw.build(nw.parse(ONE.format(dtype=dtype, n=n)), target="cpu", cache=False)


@pytest.fixture(scope="module")
def two() -> Executable:
    return nw.build(nw.parse(TWO), target="cpu", cache=False)


def by_native_code_alone(exe: Executable, monkeypatch: pytest.MonkeyPatch) -> Executable:
    """Let calls fail that native code leaves to Python."""

    def leave(*_: object) -> None:
        pytest.fail("native code did not take the arrays")

    monkeypatch.setattr(exe.loaded(), "run", leave)
    return exe


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("f32", np.float32), ("s8", np.int8), ("pred", np.bool_), ("bf16", ml_dtypes.bfloat16)],
)
@pytest.mark.parametrize("n", [0, 1, 8, 5000])
def test_native_code_takes_plain_arrays(
    dtype: str, kind: type, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = by_native_code_alone(one(dtype, n), monkeypatch)
    x = (np.arange(n) % 2).astype(kind)
    guarded = np.full(n + 2, 1, kind)
    out = guarded[1:-1]
    assert exe(x, x, out=out) is out
    np.testing.assert_array_equal(out, x + x)
    assert (guarded[0], guarded[-1]) == (1, 1)


def test_native_code_takes_a_tuple_of_arrays(
    two: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_native_code_alone(two, monkeypatch)
    out = np.zeros_like(X), np.zeros_like(Y)
    before = [sys.getrefcount(a) for a in (X, Y, out, *out)]
    for _ in range(5):
        assert two(X, Y, out=out) is out
    assert [sys.getrefcount(a) for a in (X, Y, out, *out)] == before
    np.testing.assert_array_equal(out[0], X + X)
    np.testing.assert_array_equal(out[1], Y * Y)


def test_a_neighbor_in_memory_does_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = by_native_code_alone(one(), monkeypatch)
    row = np.arange(24, dtype=np.float32)
    exe(row[:8], row[16:], out=row[8:16])
    np.testing.assert_array_equal(row[8:16], row[:8] + row[16:])


def caches(old: bool = False) -> Executable:
    return nw.build(nw.parse(text(old)), target="cpu", cache=False)


def test_a_cache_is_updated_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = by_native_code_alone(caches(), monkeypatch)
    keys, values, row, at = state()
    product = np.zeros_like(keys)
    for n in range(3):
        at[...] = n
        want = stepped(keys, values, row, at)
        exe(keys, values, row, at, out=(keys, values, product))
        for a, b in zip(want, (keys, values, product), strict=True):
            np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("how", ["in place", "crossed", "one of two", "one for both", "shifted"])
def test_a_cache_is_never_read_after_it_was_overwritten(old: bool, how: str) -> None:
    exe = caches(old)
    keys, values, row, at = state()
    memory = np.concatenate([keys, keys])
    keys = memory[:16]
    product = np.zeros_like(keys)
    if how == "one for both":
        values = keys
    out = {
        "in place": (keys, values, product),
        "crossed": (values, keys, product),
        "one of two": (np.zeros_like(keys), values, keys),
        "one for both": (keys, np.zeros_like(keys), product),
        "shifted": (memory[4:20], values, product),
    }[how]
    want = stepped(keys, values, row, at, old)
    exe(keys, values, row, at, out=out)
    for a, b in zip(want, out, strict=True):
        np.testing.assert_array_equal(b, a)


def test_results_that_overlap_are_copied_in_order(two: Executable) -> None:
    memory = np.zeros(37, np.float32)
    out = memory[:30].reshape(6, 5), memory[29:36].view(np.int32)
    two(X, Y, out=out)
    np.testing.assert_array_equal(out[1], Y * Y)
    np.testing.assert_array_equal(out[0].ravel()[:29], (X + X).ravel()[:29])


@pytest.mark.parametrize("shift", [-3, 0, 3])
def test_an_argument_may_be_overwritten(shift: int) -> None:
    exe = one()
    memory = np.arange(20, dtype=np.float32)
    x = memory[6:14]
    expected = x + x
    out = memory[6 + shift : 14 + shift]
    exe(x, x.copy(), out=out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    "out",
    [
        np.zeros_like(X),
        (np.zeros_like(X),),
        (np.zeros_like(X), np.zeros_like(Y), np.zeros_like(Y)),
        (np.zeros_like(Y), np.zeros_like(X)),
        (np.zeros_like(X), np.zeros(7, np.uint32)),
        (np.zeros((5, 6), np.float32), np.zeros_like(Y)),
        (np.ma.masked_array(np.zeros_like(X)), np.zeros_like(Y)),
        (np.zeros_like(X), np.broadcast_to(np.int32(0), (7,))),
        (np.zeros_like(X), None),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_held(two: Executable, out: Any) -> None:
    before = sys.getrefcount(X), sys.getrefcount(Y)
    with pytest.raises(ArgumentError):
        two(X, Y, out=out)
    gc.collect()
    assert (sys.getrefcount(X), sys.getrefcount(Y)) == before


def test_other_keywords_than_out_are_refused(two: Executable) -> None:
    with pytest.raises(ArgumentError, match="into"):
        two(X, Y, into=(np.zeros_like(X), np.zeros_like(Y)))
