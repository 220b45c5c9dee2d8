"""Interpolation: a ramp holds the places that its elements are read at."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nestwright.ir.dtypes import f64

Called = Callable[..., Any]


def test_places_of_f64_are_f64(called: Called) -> None:
    ramp = np.arange(12.0).reshape(1, 1, 1, 12)
    sizes = [(f64, (1, 1, 1, 11))]
    found = called("aten.upsample_bilinear2d.default", sizes, ramp, [1, 11], False)
    places = (np.arange(11) + 0.5) * (12 / 11) - 0.5
    np.testing.assert_allclose(found.ravel(), places, rtol=1e-13)
