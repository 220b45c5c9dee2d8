"""A group of a model, computed by the interpreter: the fallback for what is not compiled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..nodes import Computation
from ..text.parser import parse
from .evaluate import evaluate_computation

KEPT = 256  # groups whose text is not parsed again


def interpret(text: str, operands: Sequence[np.ndarray[Any, Any]]) -> Any:
    """Return the results of a group, given as the text of a module, on these arrays."""
    return evaluate_computation(_parsed(text), operands)


@lru_cache(KEPT)
def _parsed(text: str) -> Computation:
    return parse(text, "<group>").entry
