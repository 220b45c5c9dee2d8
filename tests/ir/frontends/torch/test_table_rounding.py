"""Operators on narrow floats, beside their exact results, rounded once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import bf16, f32, to_numpy

Called = Callable[..., Any]


@pytest.mark.parametrize(
    ("target", "first", "second", "options"),
    [
        ("addmm", (1, 3), (3, 1), ()),
        ("addmv", (1, 3), (3,), ()),
        ("baddbmm", (1, 1, 3), (1, 3, 1), ()),
        ("addbmm", (1, 1, 3), (1, 3, 1), ()),
        ("linear", (1, 3), (1, 3), ()),
        ("convolution", (1, 3, 1), (1, 3, 1), ([1], [0], [1], False, [0], 1)),
        ("convolution", (1, 3, 1), (3, 1, 1), ([1], [0], [1], True, [0], 1)),
    ],
)
def test_a_bias_is_added_before_sums_are_rounded(
    called: Called, target: str, first: tuple[int, ...], second: tuple[int, ...], options: Any
) -> None:
    narrow = to_numpy(bf16)
    a = np.array([128, 128, 1], narrow).reshape(first)
    b, bias = np.ones(second, narrow), np.ones(1, narrow)
    bias_first = target.startswith(("add", "badd"))
    given = (bias, a, b) if bias_first else (a, b, bias)
    dims = {"addmv": (1,), "addmm": (1, 1), "addbmm": (1, 1), "linear": (1, 1)}.get(
        target, (1, 1, 1)
    )
    found = called(f"aten.{target}.default", [(bf16, dims)], *given, *options)
    assert float(found.reshape(())) == 258  # 257 would become 256


def test_products_and_sums_of_optimizers(called: Callable[..., Any]) -> None:
    x, y, z = np.random.default_rng(2).standard_normal((3, 4, 5), np.float32)
    found = called("prims.fma.default", [(f32, (4, 5))], x, y[:1], z)
    np.testing.assert_allclose(found, x * y[:1] + z, rtol=1e-6)
    np.testing.assert_allclose(
        called("prims.fma.default", [(f32, (4, 5))], x, 0.5, z), x * 0.5 + z, rtol=1e-6
    )
