"""Layers of 8-bit floats on simulated tensor cores: exact sums, overflow, NaN, odd extents."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.plan.code.device import DeviceCode
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse

LAYER = """HloModule layer
ENTRY main {
  x = TYPE[M,K] parameter(0)
  w = RIGHT[N,K] parameter(1)
  s = bf16[] parameter(2)
  t = bf16[] parameter(3)
  o = bf16[] parameter(4)
  xc = bf16[M,K] convert(x)
  wc = bf16[N,K] convert(w)
  xs = bf16[M,K] broadcast(s), dimensions={}
  ws = bf16[N,K] broadcast(t), dimensions={}
  xm = bf16[M,K] multiply(xc, xs)
  wm = bf16[N,K] multiply(wc, ws)
  d = f32[M,N] dot(xm, wm), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  os = bf16[M,N] broadcast(o), dimensions={}
  of = f32[M,N] convert(os)
  q = f32[M,N] multiply(d, of)
  CLAMP
  ROOT y = TYPE[M,N] convert(QUANTIZED)
}
"""
CLAMP = """lo = f32[] constant(-MOST)
  hi = f32[] constant(MOST)
  c = f32[M,N] clamp(lo, q, hi)"""
MOST = {"f8e4m3fn": "448", "f8e5m2": "57344"}


def layer(dtype: str, right: str, m: int, n: int, k: int, clamped: bool) -> str:
    text = LAYER.replace("CLAMP", CLAMP if clamped else "").replace("MOST", MOST[dtype])
    text = (
        text.replace("QUANTIZED", "c" if clamped else "q")
        .replace("TYPE", dtype)
        .replace("RIGHT", right)
    )
    for name, size in (("M", m), ("N", n), ("K", k)):
        text = re.sub(rf"\b{name}\b", str(size), text)
    return text


def whole(dtype: str, right: str, m: int, n: int, k: int) -> list[np.ndarray]:
    """Numbers whose sums are exact, up to beyond the largest; powers of two as scales; a NaN."""
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-4, 5, (rows, k)).astype(np.float32) for rows in (m, n))
    x[0], w[0], x[1, 0] = 4, 4, np.nan
    own, other, half = (to_numpy(BY_NAME[d]) for d in (dtype, right, "bf16"))
    large = 2.0 if dtype == "f8e4m3fn" else 256.0
    return [x.astype(own), w.astype(other), *(np.asarray(s, half) for s in (0.5, 0.25, large))]


@pytest.mark.parametrize(
    ("dtype", "right", "arch", "shape", "clamped"),
    [
        ("f8e5m2", "f8e4m3fn", "sm_89", (33, 34, 35), False),
        ("f8e4m3fn", "f8e4m3fn", "sm_90a", (65, 40, 96), True),
        ("f8e4m3fn", "f8e4m3fn", "sm_80", (3, 70, 96), False),
    ],
)
def test_layers(
    dtype: str,
    right: str,
    arch: str,
    shape: tuple[int, int, int],
    clamped: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, args = parse(layer(dtype, right, *shape, clamped)), whole(dtype, right, *shape)
    want = np.asarray(evaluate(module, args))
    exe = nw.build(module, target=f"cuda-sim -arch={arch}")
    for seed in ("0", "5"):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        got = np.asarray(exe(*args))
        lost = np.isnan(want.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), lost)
        np.testing.assert_array_equal(got.view("u1")[~lost], want.view("u1")[~lost])
        assert lost.any() and not lost.all()


def test_a_layer_is_one_launch_on_tensor_cores() -> None:
    """Quantized, multiplied, scaled and quantized again: nothing is widened in memory."""
    text = layer("f8e4m3fn", "f8e5m2", 256, 256, 256, True)
    (code,) = nw.build(parse(text), target="cuda -arch=sm_89").bundle.kernels.values()
    assert isinstance(code, DeviceCode)
    assert len(code.launches) == 1
    assert "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32" in code.ptx
    assert "cvt.rn.satfinite.e4m3x2.f32" in code.ptx and "cp.async" in code.ptx
    assert not any(code.spills)
