"""The types of the interpreter's values and of the functions that compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from .nodes import Computation, Instruction

Array: TypeAlias = np.ndarray[Any, Any]
Value: TypeAlias = Any
"""An array or a tuple of values; NumPy's functions take what the verifier let through."""

Run: TypeAlias = Callable[[Computation, Sequence[Value]], Value]
"""Runs a called computation."""

Handler: TypeAlias = Callable[[Instruction, list[Value], Run], Value]
"""Computes one instruction from the values of its operands."""
