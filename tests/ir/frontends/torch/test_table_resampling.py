"""Images at other sizes and at computed places, and the gradients of the latter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import f64

Called = Callable[..., Any]


def test_places_of_f64_are_f64(called: Called) -> None:
    ramp = np.arange(12.0).reshape(1, 1, 1, 12)
    sizes = [(f64, (1, 1, 1, 11))]
    found = called("aten.upsample_bilinear2d.default", sizes, ramp, [1, 11], False)
    places = (np.arange(11) + 0.5) * (12 / 11) - 0.5
    np.testing.assert_allclose(found.ravel(), places, rtol=1e-13)


@pytest.mark.parametrize(
    ("mode", "rank", "padding", "corners"),
    [
        (0, 2, 0, True),
        (0, 2, 1, False),
        (0, 3, 2, False),
        (0, 2, 2, True),
        (1, 2, 1, False),
        (2, 2, 1, True),
        (2, 2, 2, False),
    ],
)
def test_gradients_of_images_and_their_places(
    called: Called, mode: int, rank: int, padding: int, corners: bool
) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 2, *(4, 3, 3)[:rank]))
    grid = random.normal(size=(2, *(3, 2, 1)[:rank], rank)) * 1.3
    grad = random.normal(size=(2, 2, *grid.shape[1:-1]))
    name, rest = f"aten.grid_sampler_{rank}d", (mode, padding, corners)

    def lost(x: Any, grid: Any) -> float:
        found = called(f"{name}.default", [(f64, grad.shape)], x, grid, *rest)
        return float((found * grad).sum())

    sizes = [(f64, x.shape), (f64, grid.shape)]
    of_x, of_grid = called(f"{name}_backward.default", sizes, grad, x, grid, *rest, [True, True])
    other = random.normal(size=x.shape)
    np.testing.assert_allclose((of_x * other).sum(), lost(other, grid), rtol=1e-9)
    step = random.normal(size=grid.shape) * 1e-7
    slope = lost(x, grid + step) - lost(x, grid - step)
    np.testing.assert_allclose(2 * (of_grid * step).sum(), slope, rtol=1e-4, atol=1e-12)


def test_no_images_at_no_places(called: Called) -> None:
    x, grid, grad = (np.zeros(d) for d in ((0, 2, 4, 5), (0, 3, 3, 2), (0, 2, 3, 3)))
    sizes = [(f64, x.shape), (f64, grid.shape)]
    assert (
        called("aten.grid_sampler_2d.default", [(f64, grad.shape)], x, grid, 0, 0, True).size == 0
    )
    given = (grad, x, grid, 0, 0, True, [True, True])
    assert [t.size for t in called("aten.grid_sampler_2d_backward.default", sizes, *given)] == [
        0,
        0,
    ]
