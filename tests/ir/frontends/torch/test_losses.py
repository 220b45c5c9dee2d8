"""Our decompositions of losses beside torch's kernels."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not in this environment")

from nestwright.ir.frontends.torch.decompositions import decompositions, own_kernels  # noqa: E402
from nestwright.ir.frontends.torch.losses import multilabel_margin  # noqa: E402


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
