"""QR factors of up to 32 rows by loops: reflectors like LAPACK's, at any scale, of any zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.arrays import Array
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.expand.small_factors import expand_small_factors
from nestwright.ir.hlo.text import parse

TEXT = """HloModule qr
ENTRY e {{
  a = {t}[{b},{m},{n}] parameter(0)
  c = ({t}[{b},{m},{n}], {t}[{b},{k}]) custom-call(a), custom_call_target="Qr"
  h = {t}[{b},{m},{n}] get-tuple-element(c), index=0
  u = {t}[{b},{k}] get-tuple-element(c), index=1
  q = {t}[{b},{m},{n}] custom-call(h, u),
    custom_call_target="ProductOfElementaryHouseholderReflectors"
  ROOT r = ({t}[{b},{m},{n}], {t}[{b},{k}], {t}[{b},{m},{n}]) tuple(h, u, q)
}}
"""


def factors(a: Array) -> tuple[Array, Array, Array]:
    """What the routines return, and Q, by loops alone."""
    b, m, n = a.shape
    t = "f32" if a.dtype == np.float32 else "f64"
    module = expand_small_factors(parse(TEXT.format(t=t, b=b, m=m, n=n, k=min(m, n))))
    assert not any(i.opcode == "custom-call" for i in module.entry.instructions)
    found = evaluate(module, [a])
    assert isinstance(found, tuple)
    h, tau, q = map(np.asarray, found)
    return h, tau, q


def matrices(m: int, n: int, dtype: Any) -> Array:
    return np.random.default_rng(0).standard_normal((5, m, n)).astype(dtype)


def triangle(a: Array) -> Array:
    """Every second matrix without anything below its diagonal, the others with a zero column."""
    a = a.copy()
    a[::2] = np.triu(a[::2])
    a[1::2, :, 1] = 0
    return a


def signed_zeros(a: Array) -> Array:
    """The first element is a zero of one sign or the other."""
    a = np.round(a)
    a[::2, 0, 0], a[1::2, 0, 0] = 0.0, -0.0
    return a


def first_apart(a: Array) -> Array:
    """The first row is far below, or above, all others."""
    a = a.copy()
    a[::2, 0] *= 1e-30
    a[1::2, 1:] *= 1e-30
    return a


CHANGES = {
    "numbers": lambda a: a,
    "nothing below": triangle,
    "zeros": np.zeros_like,
    "zeros of both signs": signed_zeros,
    "large": lambda a: a * a.dtype.type(1e30),
    "small": lambda a: a * a.dtype.type(1e-30),
    "first row apart": first_apart,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("sides", [(5, 5), (9, 4)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factors_multiply_to_the_matrix(change: str, sides: tuple[int, int], dtype: Any) -> None:
    a = CHANGES[change](matrices(*sides, dtype))
    h, tau, q = factors(a)
    n = sides[1]
    eps = 50 * np.finfo(dtype).eps
    r = np.triu(h)[:, :n]
    scale = np.abs(a).max(axis=(1, 2), keepdims=True)
    with np.errstate(over="ignore"):
        assert (np.abs(q @ r - a) <= eps * scale).all()
    np.testing.assert_allclose(q.swapaxes(1, 2) @ q, np.eye(n)[None].repeat(5, 0), atol=eps)
    assert ((tau == 0) | ((tau > 1 - eps) & (tau < 2 + eps))).all()


@pytest.mark.parametrize(
    "change", ["numbers", "nothing below", "zeros", "zeros of both signs", "first row apart"]
)
def test_reflectors_are_lapacks(change: str) -> None:
    lapack = pytest.importorskip("scipy.linalg.lapack")
    a = CHANGES[change](matrices(9, 4, np.float64))
    h, tau, _ = factors(a)
    for own, factor, given in zip(h, tau, a, strict=True):
        found, their, _, _ = lapack.dgeqrf(given)
        np.testing.assert_allclose(own, found, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(factor, their, rtol=1e-9)
