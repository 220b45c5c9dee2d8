"""Pairs of f32 in one instruction, on architectures that have such sums and products."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.plan.code.device import DeviceCode

PRODUCT = """HloModule product
ENTRY main {{
  a = f32[{m},{k}] parameter(0)
  b = f32[{k},{n}] parameter(1)
  ROOT c = f32[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


@pytest.mark.parametrize(
    ("arch", "packed"), [("sm_90", False), ("sm_100", True), ("sm_120a", True)]
)
def test_products_on_ordinary_cores(arch: str, packed: bool) -> None:
    module = nw.parse(PRODUCT.format(m=256, k=256, n=256))
    exe = nw.build(module, f"cuda -arch={arch}", cache=False)
    codes = [c for c in exe.bundle.kernels.values() if isinstance(c, DeviceCode)]
    assert any("fma.rn.f32x2" in c.ptx for c in codes) == packed


@pytest.mark.parametrize("shape", [(96, 40, 72), (67, 129, 130)])
def test_they_are_right(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 10, s).astype(np.float32) for s in ((m, k), (k, n)))
    exe = nw.build(nw.parse(PRODUCT.format(m=m, k=k, n=n)), "cuda-sim -arch=sm_100", cache=False)
    np.testing.assert_array_equal(exe(a, b), a @ b)
