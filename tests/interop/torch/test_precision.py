"""Training in mixed precision: gradients beside those of f64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not in this environment")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, at import and while it traces


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.nn.BatchNorm1d(3),
        lambda: torch.nn.LayerNorm(8),
    ],
)
def test_statistics_of_narrow_floats_are_f32(make: Callable[[], Any]) -> None:
    norm = make()
    exact = copy.deepcopy(norm).double()
    x = (torch.randn(4, 3, 8) / 4 + 50).bfloat16()
    grad = torch.randn(4, 3, 8).bfloat16()
    torch.compile(norm, backend="nestwright")(x.requires_grad_()).backward(grad)
    y = x.detach().double().requires_grad_()
    exact(y).backward(grad.double())
    torch.testing.assert_close(norm.weight.grad.double(), exact.weight.grad, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(x.grad.double(), y.grad, rtol=1e-2, atol=1e-2)
