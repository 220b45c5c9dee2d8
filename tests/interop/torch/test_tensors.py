"""torch's tensors as arguments of an executable: their memory is read, whatever it means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ArgumentError

torch = pytest.importorskip("torch", reason="torch is not in this environment")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, at import


class Total(torch.nn.Module):  # type: ignore[misc]
    def forward(self, *given: Any) -> Any:
        found = given[0]
        for x in given[1:]:
            found = found + x
        return found


def total(*given: Any) -> nw.Executable:
    """The compiled sum, after a first call."""
    exe = nw.lower(Total(), *given).compile()
    exe(*given)
    return exe


def test_tensors_are_read_without_a_capsule(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [torch.randn(4, 3) for _ in range(10)]
    exe = total(*given)
    monkeypatch.delattr(torch.Tensor, "__dlpack__")
    np.testing.assert_allclose(exe(*given), sum(given).numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.complex64],
    ids=str,
)
def test_element_types(dtype: Any) -> None:
    x = torch.arange(6).reshape(2, 3).to(dtype)
    exe = total(x, x)
    assert (np.asarray(exe(x, x), np.complex64) == (x + x).to(torch.complex64).numpy()).all()


def test_views_that_torch_settles_when_it_reads_them() -> None:
    x = torch.randn(5, dtype=torch.complex64)
    exe = total(x, x)
    np.testing.assert_allclose(exe(x.conj(), x), 2 * x.real.numpy(), atol=1e-6)
    real = x.real.contiguous()
    negated = torch._neg_view(real)
    for other in (nw.lower(Total(), real, real).compile(), total(real, real)):
        np.testing.assert_array_equal(other(negated, real), np.zeros(5))


def test_narrow_floats_with_gaps() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn):
        x = torch.arange(12).reshape(3, 4).to(dtype)
        exe = nw.lower(torch.nn.Identity(), x[:, ::2]).compile()
        for given in (x[:, 1::2], x[:, :2].contiguous()):
            assert (np.asarray(exe(given), np.float32) == given.float().numpy()).all()


def test_views_with_gaps_and_turned_ones() -> None:
    x = torch.randn(4, 6)
    exe = total(x[:, ::2], x[:, ::2])
    np.testing.assert_allclose(exe(x[:, 1::2], x[:3].T[:4, :]), x[:, 1::2] + x[:3].T[:4, :])


def test_tensors_whose_gradient_would_be_lost_are_refused() -> None:
    x = torch.randn(3)
    exe = total(x, x)
    with pytest.raises(ArgumentError, match=r"requires? grad"):
        exe(x.clone().requires_grad_(), x)
