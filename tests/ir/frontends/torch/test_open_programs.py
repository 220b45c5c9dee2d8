"""Exported programs that leave sizes of their inputs open; needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import ArgumentError, NestwrightError
from nestwright.ir.frontends.declared import declared_inputs

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Pairs(torch.nn.Module):  # type: ignore[misc]
    """Sums of neighboring rows of ``input``, whose name is one of Python's, beside ``y``."""

    def forward(self, input: Any, y: Any) -> Any:
        return input.view(-1, 2, 3).sum(1) * y.shape[0] + y, input.shape[0]


def program(**dims: Any) -> Any:
    n = torch.export.Dim("n", min=3, max=64)
    shapes = {"input": {0: 2 * n}, "y": {0: n}} | dims
    return torch.export.export(
        Pairs(), (torch.randn(8, 3), torch.randn(4, 3)), dynamic_shapes=shapes, strict=False
    )


def test_sizes_are_those_of_a_call() -> None:
    torch.manual_seed(0)
    model = program()
    assert declared_inputs(model) == {"input": (None, 3), "y": (None, 3)}
    exe = nw.build(model, shapes={"input": (range(6, 129), 3), "y": (None, 3)})
    for n in (3, 10):
        x, y = torch.randn(2 * n, 3), torch.randn(n, 3)
        wanted, count = Pairs()(x, y)
        (found,) = np.atleast_1d(exe(x, y)[None])
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-6)
        again = nw.lower(model, shapes={"y": (n, 3)}).compile()  # one size settles the other
        assert again(x, y)[1] == count
    assert model.range_constraints == program().range_constraints


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        ({}, "its dimension 0 is open"),
        ({"x": (8, 3)}, "no input 'x'"),
        ({"input": (8,)}, "2 dimensions, not 1"),
        ({"input": (7, 3)}, r"dimension 0 is 7, the program has 2\*s"),
        ({"input": (8, 3), "y": (5, 3)}, r"dimension 0 is 8, .* = 5"),
        ({"y": (4, 2)}, "dimension 1 is 2, the program has 3"),
        ({"y": (65, 3)}, "takes (3 to 64|6 to 128)"),
    ],
)
def test_sizes_that_a_program_does_not_take_are_refused(shapes: Any, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        nw.lower(program(), shapes=shapes)


def test_a_file_keeps_its_open_sizes_and_what_it_requires_of_them(tmp_path: Path) -> None:
    class Even(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2 if x.shape[0] % 2 == 0 else x * 3

    auto = ({0: torch.export.Dim.AUTO},)
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Even(), (torch.ones(6, 3),), dynamic_shapes=auto), path)
    assert declared_inputs(path) == {"x": (None, 3)}
    exe = nw.build(path, shapes={"x": (None, 3)})
    np.testing.assert_array_equal(exe(np.ones((4, 3), np.float32)), np.full((4, 3), 2))
    with pytest.raises(NestwrightError, match="% 2 == 0"):
        exe(np.ones((5, 3), np.float32))
