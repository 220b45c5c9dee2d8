"""XLA's CPU as a second opinion on HLO text, where jax is installed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from nestwright.autotune.bench.peers.xla import compiled, run

from .builder import Array

_FEW_BITS = re.compile(r"\b[su][24]\[")


def here() -> bool:
    """True if jax is installed."""
    return find_spec("jax") is not None


def results(text: str, arguments: Sequence[Array]) -> list[Array] | None:
    """Return XLA's results, one array each; None if it refuses the module or is not a reference.

    jax 0.10 sorts integers of 2 and 4 bits wrongly.
    """
    if _FEW_BITS.search(text):
        return None
    try:
        return run(compiled(text), [np.array(a, order="C") for a in arguments])
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return None
