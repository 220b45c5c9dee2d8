"""Transposed convolutions by phases: no zero between dilated pixels is multiplied.

With pixels ``d`` apart, the results ``r, r + d, r + 2 d, ..`` of a dimension see the same part of
the window, every ``d``-th element: one convolution without dilation for each phase ``r``. Their
results are interleaved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from ...nodes import Instruction, Shape, SliceDim, Window, WindowDim
from ...patterns import build
from ...rewrite import make

MOST = 16
"""Convolutions that one is taken apart into, at most."""


@dataclass(frozen=True, slots=True)
class _Phase:
    """A phase of one dimension: which pixels and which elements of the window it sees.

    ``pixels`` is empty where it sees padding alone, or nothing.
    """

    pixels: SliceDim
    elements: SliceDim
    window: WindowDim

    @property
    def is_empty(self) -> bool:
        """True if nothing is seen but padding."""
        return self.pixels.start >= self.pixels.limit or self.window.size == 0


def by_phases(i: Instruction) -> Instruction | None:
    """A canonical convolution of dilated pixels as several of plain ones; None for others."""
    x, w = i.operands
    window: Window = i.attrs.get("window", ())
    apart = tuple(d.lhs_dilate for d in window)
    if not 1 < math.prod(apart) <= MOST or 0 in (*x.array.dims, *w.array.dims, *i.array.dims):
        return None
    grouped = i.attrs.get("feature_group_count", 1) != 1
    if grouped and w.array.dims[-2] == 1:  # few terms: moving the phases would cost more
        return None
    if any(d.lhs_dilate > 1 and (d.stride, d.rhs_dilate) != (1, 1) for d in window):
        return None
    batch, *out, features = i.array.dims
    counts = [math.ceil(n / d) for n, d in zip(out, apart, strict=True)]
    dims = (batch, *counts, features)
    parts = {}
    for place in product(*map(range, apart)):
        given = zip(window, x.array.dims[1:-1], counts, place, strict=True)
        parts[place] = _result(i, [_phase(*dim) for dim in given], dims)
    found = _interleaved(parts, apart)
    if found.array.dims == i.array.dims:
        return found
    whole = tuple(SliceDim(0, n) for n in i.array.dims)
    return make("slice", i.shape, (found,), slice=whole)


def _phase(d: WindowDim, pixels: int, count: int, r: int) -> _Phase:
    """Return what the results ``r + d.lhs_dilate * q`` see, for ``q`` below ``count``."""
    if d.lhs_dilate == 1:
        return _Phase(SliceDim(0, pixels), SliceDim(0, d.size), d)
    first = (d.pad_low - r) % d.lhs_dilate
    size = len(range(first, d.size, d.lhs_dilate))
    start = (r + first - d.pad_low) // d.lhs_dilate
    stop = start + count + size - 1
    window = WindowDim(size, pad_low=max(0, -start), pad_high=max(0, stop - pixels))
    seen = SliceDim(max(0, start), min(stop, pixels))
    return _Phase(seen, SliceDim(first, d.size, d.lhs_dilate), window)


def _result(i: Instruction, phases: list[_Phase], dims: tuple[int, ...]) -> Instruction:
    """Return the results of one phase of each dimension."""
    if any(p.is_empty for p in phases):
        return build.full(0, i.array.dtype, dims)
    x, w = i.operands
    first, last = (SliceDim(0, n) for n in (x.array.dims[0], x.array.dims[-1]))
    pixels = _sliced(x, (first, *(p.pixels for p in phases), last))
    ends = (SliceDim(0, n) for n in w.array.dims[-2:])
    elements = _sliced(w, (*(p.elements for p in phases), *ends))
    window = tuple(p.window for p in phases)
    shape = Shape(i.array.dtype, dims)
    attrs = {**i.attrs, "window": window}
    return make("convolution", shape, (pixels, elements), metadata=i.metadata, **attrs)


def _sliced(x: Instruction, by: tuple[SliceDim, ...]) -> Instruction:
    dims = tuple(len(range(s.start, s.limit, s.stride)) for s in by)
    if dims == x.array.dims:
        return x
    return make("slice", Shape(x.array.dtype, dims), (x,), slice=by)


def _interleaved(parts: dict[tuple[int, ...], Instruction], apart: tuple[int, ...]) -> Instruction:
    """Put results of all phases in turn, ``[n, q0, q1, .., f]`` to ``[n, q0 d0, q1 d1, .., f]``."""
    for axis in reversed(range(len(apart))):
        joined = {}
        for place in {p[:axis] for p in parts}:
            turn = [parts[(*place, r)] for r in range(apart[axis])]
            joined[place] = _in_turn(turn, axis + 1)
        parts = joined
    return parts[()]


def _in_turn(turn: list[Instruction], axis: int) -> Instruction:
    """The rows of several arrays in turn, along one dimension."""
    if len(turn) == 1:
        return turn[0]
    *outer, rows = turn[0].array.dims[: axis + 1]
    inner = turn[0].array.dims[axis + 1 :]
    wide = [build.reshape(t, (*outer, rows, 1, *inner)) for t in turn]
    shape = Shape(turn[0].array.dtype, (*outer, rows, len(turn), *inner))
    stacked = make("concatenate", shape, wide, dimensions=(axis + 1,))
    return build.reshape(stacked, (*outer, rows * len(turn), *inner))
