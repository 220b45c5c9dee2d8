"""Arguments and results with bounded dimensions: padded for a run, cut to their sizes after it.

``codegen.plan.signature`` defines the slots of such an array.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.arrays import Array
from ...ir.dtypes import to_numpy
from ..plan.signature import ArraySpec, bounded_dims, slots
from .outputs import allocator


def padded(arrays: Sequence[Array], specs: Sequence[ArraySpec]) -> list[Array]:
    """Return the slots of arrays in memory order. The contents of the padding have no meaning."""
    found: list[Array] = []
    for array, spec in zip(arrays, specs, strict=True):
        whole = array
        if array.shape != spec.stored:
            whole = np.zeros(spec.stored, array.dtype)
            whole[tuple(map(slice, array.shape))] = array
        found.append(whole)
        found += [np.array(array.shape[d], np.int32) for d in bounded_dims(spec)]
    return found


def empty(specs: Sequence[ArraySpec]) -> list[Array]:
    """Return uninitialized slots for results."""
    return [allocator(s.bytes)(s.stored, to_numpy(s.dtype)) for s in slots(specs)]


def live(found: Sequence[Array], specs: Sequence[ArraySpec]) -> list[Array]:
    """Return the arrays in slots, cut to their live sizes, in memory order."""
    rest = iter(found)
    arrays: list[Array] = []
    for spec in specs:
        array = next(rest)
        dims = list(spec.stored)
        for d in bounded_dims(spec):
            dims[d] = int(next(rest))
        if tuple(dims) != spec.stored:
            array = array[tuple(map(slice, dims))].copy()
        arrays.append(array)
    return arrays
