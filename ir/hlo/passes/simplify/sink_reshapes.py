"""Sinking of reshapes below element-wise work, so that a product's epilogue has its shape.

A canonical dot gives ``[m, n]`` where the model continues with ``[batch, length, n]``. An
element-wise chain after a dot, convolution or reduction can be computed in the product's shape,
with one reshape at its end. Reshapes never move up, so the pass terminates: an operation that has a
product's result as an operand stays as it is.
"""

from __future__ import annotations

import math

from ...nodes import Computation, HloModule, Instruction, Shape
from ...patterns import build
from ...patterns.match import all_static, is_pointwise, segments, splat
from ...rewrite import make, map_computations, rebuild

ANCHORS = frozenset({"dot", "convolution", "reduce", "reduce-window"})


def sink_reshapes(module: HloModule) -> HloModule:
    """``op(reshape(x), reshape(y))``  ->  ``reshape(op(x, y))``"""
    return map_computations(module, _sink)


def _sink(computation: Computation) -> Computation:
    if not any(i.opcode == "reshape" for i in computation.instructions):
        return computation
    ranks: dict[Instruction, int] = {}

    def rule(i: Instruction) -> Instruction | None:
        new = _rewrite(i, ranks)
        for known in (i, new, *new.operands) if new is not None else (i,):
            _rank(known, ranks)
        return new

    return rebuild(computation, rule)


def _rank(i: Instruction, ranks: dict[Instruction, int]) -> None:
    """Record the anchor whose shape ``i`` has: the number of the last one whose chain it is in."""
    if i.opcode in ANCHORS:
        ranks.setdefault(i, len(ranks) + 1)
    elif is_pointwise(i):
        ranks[i] = max(ranks.get(o, 0) for o in i.operands)


def _rewrite(i: Instruction, ranks: dict[Instruction, int]) -> Instruction | None:
    if not all_static(i):
        return None
    if i.opcode == "reduce":
        return _past_reduce(i)
    if not is_pointwise(i):
        return None
    full = [o for o in i.operands if not _is_spread(o)]
    views = [o for o in full if o.opcode == "reshape"]
    if not views:
        return None
    preferred = max(views, key=lambda o: ranks.get(o.operands[0], 0))
    rank = ranks.get(preferred.operands[0], 0)
    if rank == 0:
        sources = {o.operands[0].array.dims for o in views}
        if len(views) < len(full) or len(sources) != 1:
            return None
    elif any(ranks.get(o, 0) >= rank for o in full):
        return None
    dims = preferred.operands[0].array.dims
    if any(_has_other_rows(o, dims) for o in i.operands if o not in full):
        return None
    moved = tuple(_moved(o, dims) for o in i.operands)
    shape = Shape(i.array.dtype, dims)
    new = make(i.opcode, shape, moved, name=i.name, metadata=i.metadata, **i.attrs)
    return build.reshape(new, i.array.dims)


def _is_spread(o: Instruction, depth: int = 4) -> bool:
    """True if ``o`` is a broadcast or splat, or up to ``depth`` steps of arithmetic on them."""
    if o.opcode == "broadcast" or splat(o) is not None:
        return True
    return depth > 0 and is_pointwise(o) and all(_is_spread(x, depth - 1) for x in o.operands)


def _has_other_rows(o: Instruction, dims: tuple[int, ...], depth: int = 8) -> bool:
    """True if a spread ``o`` reduces the rows of an array of as many elements as ``dims``.

    An operation on it belongs to those rows, as in a softmax, and not to the anchor's epilogue.
    """
    if o.opcode == "reduce":
        whole, kept = o.operands[0].array, o.array.rank
        rows = set(o.attrs["dimensions"]) == set(range(kept, whole.rank))
        return rows and whole.size == math.prod(dims) and whole.dims != dims
    through = o.opcode in ("broadcast", "reshape", "transpose") or is_pointwise(o)
    return through and depth > 0 and any(_has_other_rows(x, dims, depth - 1) for x in o.operands)


def _moved(o: Instruction, dims: tuple[int, ...]) -> Instruction:
    """Return ``o`` reshaped; arithmetic on broadcasts is repeated in the other shape."""
    if is_pointwise(o) and _is_spread(o):
        parts = tuple(_moved(x, dims) for x in o.operands)
        return make(o.opcode, Shape(o.array.dtype, dims), parts, metadata=o.metadata, **o.attrs)
    return build.reshape(o, dims)


def _past_reduce(i: Instruction) -> Instruction | None:
    """reduce(reshape(x))  ->  reshape(reduce(x)), if each merged group is reduced whole"""
    views = i.operands[: len(i.operands) // 2]
    if len(views) != 1 or views[0].opcode != "reshape":
        return None
    x = views[0].operands[0]
    runs = segments(x.array.dims, views[0].array.dims)
    if runs is None:
        return None
    axes = set(i.attrs["dimensions"])
    reduced: list[int] = []
    for old, after in runs:
        inside = [d in axes for d in after]
        if any(inside) and not all(inside):
            return None
        reduced += old if all(inside) else ()
    if not reduced:
        return None
    kept = tuple(d for k, d in enumerate(x.array.dims) if k not in reduced)
    if math.prod(kept) != i.array.size:
        return None
    attrs = {**i.attrs, "dimensions": tuple(reduced)}
    shape = Shape(i.array.dtype, kept)
    new = make("reduce", shape, (x, i.operands[1]), name=i.name, metadata=i.metadata, **attrs)
    return build.reshape(new, i.array.dims)
