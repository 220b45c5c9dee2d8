"""Values of names of a graph while it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ....dtypes import DType
from ...lax.term import Term


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of arrays; how many there are is known while reading, their shapes may differ.

    ``dtype`` is that of the elements, of which there may be none.
    """

    elements: tuple[Term, ...]
    dtype: DType


Value: TypeAlias = Term | Sequence | None
"""An array, a sequence of arrays, or an optional that is absent."""
