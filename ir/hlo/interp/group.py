"""A group or a reducer of a model, given as text, computed by the interpreter.

The fallback for groups that are not compiled, and for reducers over devices that NumPy lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...arrays import Array
from ...conversion import convert
from ..nodes import Computation
from ..text.parser import parse
from .evaluate import evaluate_computation
from .lift import Runner

KEPT = 256  # groups whose text is not parsed again


def interpret(text: str, operands: Sequence[Array]) -> Any:
    """Return the results of a group, given as the text of a module, on these arrays."""
    return evaluate_computation(_parsed(text), operands)


def combine(text: str, a: Array, b: Array) -> Array:
    """Combine two arrays element by element by a computation of scalars, given as its text."""
    computation = _parsed(text)
    run = Runner(lambda c, args: evaluate_computation(c, args))
    return convert(np.asarray(run.lifted(computation)(a, b)), a.dtype)


@lru_cache(KEPT)
def _parsed(text: str) -> Computation:
    return parse(text, "<group>").entry
