"""Our decompositions of losses beside torch's kernels."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not in this environment")

from nestwright.ir.frontends.torch.decompositions import decompositions, own_kernels  # noqa: E402
from nestwright.ir.frontends.torch.losses import LossReduction, multilabel_margin  # noqa: E402


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize(
    "target", [[1, -1, 0], [[2, 0, -1], [-1, 1, 1], [0, 1, 2], [1, 1, -1]], [[-1, -1, 0]]]
)
def test_rows_of_classes_end_at_the_first_minus_one(target: Any, reduction: int) -> None:
    classes = torch.tensor(target)
    x = torch.linspace(-2, 1, classes.numel()).reshape(classes.shape)
    want = torch.ops.aten.multilabel_margin_loss_forward(x, classes, reduction)
    torch.testing.assert_close(multilabel_margin(x, classes, reduction), want)


def test_our_kernel_is_used_while_torch_traces() -> None:
    decompositions()  # torch registers its own kernels with them
    op = torch.ops.aten.multilabel_margin_loss_forward.default
    held = dict(op.py_kernels)
    with own_kernels(learns=True):
        assert multilabel_margin in op.py_kernels.values()
    assert op.py_kernels == held


@pytest.mark.parametrize("loss", ["mse_loss", "smooth_l1_loss", "huber_loss"])
def test_gradients_of_no_elements(loss: str) -> None:
    op = getattr(torch.ops.aten, f"{loss}_backward").default
    given = [torch.ones(()), torch.ones(0, 3), torch.ones(0, 3), LossReduction.MEAN]
    given += [1.0] * (loss != "mse_loss")
    torch.testing.assert_close(decompositions()[op](*given), op(*given))


def test_the_gradient_of_a_norm_of_no_elements() -> None:
    op = torch.ops.aten.native_group_norm_backward.default
    x, per_group, gamma = torch.ones(2, 4, 0), torch.ones(2, 2), torch.ones(4)
    given = x, x, per_group, per_group, gamma, 2, 4, 0, 2, [True, True, True]
    torch.testing.assert_close(decompositions()[op](*given), op(*given))
