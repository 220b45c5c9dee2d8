"""Arguments and results with bounded dimensions: padded for a run, cut to their sizes after it.

Native code has such an array at its bound, and each of its sizes as an s32 of its own, which
follows the array in the order of the dimensions in memory. Together these are a spec's slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ...ir.dtypes import s32, to_numpy
from .entry import ArraySpec
from .outputs import allocator

Array: TypeAlias = np.ndarray[Any, Any]


def is_bounded(specs: Sequence[ArraySpec]) -> bool:
    """Whether any array has a bounded dimension."""
    return any(any(s.dynamic) for s in specs)


def bounded_dims(spec: ArraySpec) -> list[int]:
    """The dimensions, as they are stored, of which only the bound is known."""
    order = spec.order or range(len(spec.dims))
    return [k for k, d in enumerate(order) if spec.dynamic and spec.dynamic[d]]


def slots(specs: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
    """What native code takes for these arrays: each at its bound, followed by its sizes."""
    found: list[ArraySpec] = []
    for spec in specs:
        found.append(replace(spec, dynamic=()))
        for d in bounded_dims(spec):
            found.append(ArraySpec(f"size {d} of {spec.name}", s32, ()))
    return tuple(found)


def padded(arrays: Sequence[Array], specs: Sequence[ArraySpec]) -> list[Array]:
    """Slots for arrays as they are stored. What stands in the padding has no meaning."""
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
    """Slots for results, not filled."""
    return [allocator(s.bytes)(s.stored, to_numpy(s.dtype)) for s in slots(specs)]


def live(found: Sequence[Array], specs: Sequence[ArraySpec]) -> list[Array]:
    """The arrays in slots at their live sizes, as they are stored."""
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
