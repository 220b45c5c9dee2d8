"""A form in which an operation prints, and the values that tests give to it."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Form: TypeAlias = tuple[str, str, str, list[Any], Any]
"""Operations, types of %a, %b, .., type of %r, values, what is expected."""

F, N = np.float32, np.int32
X = np.arange(6, dtype=F).reshape(2, 3)
V = np.array([3, 1, 2], N)
S = "tensor<f32>"
