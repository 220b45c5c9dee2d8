"""Products with repeated operands: keys and values that several query heads share."""

from __future__ import annotations

from typing import NamedTuple

from ...nodes import Instruction, Shape
from ...patterns import build
from ...rewrite import make
from .repeated import once, repetitions

Dims = tuple[int, ...]


class SharedProduct(NamedTuple):
    """A ``dot`` on what was repeated: by ``order`` and a reshape it becomes the one before."""

    dot: Instruction
    order: Dims


def share_repeated(i: Instruction) -> SharedProduct | None:
    """dot(x[b*g, m, k], repeat(y[b, k, n]))  ->  dot(x[b, g*m, k], y), and reshapes

    What is repeated along a batch dimension is read where it is, and its repetitions are rows of
    the other operand. None if neither operand is so.
    """
    batch = (i.attrs.get("lhs_batch_dims", ()), i.attrs.get("rhs_batch_dims", ()))
    for side in (1, 0):
        for place, d in enumerate(batch[side]):
            if (times := repetitions(i.operands[side], d)) > 1:
                return _shared(i, side, place, once(i.operands[side], d, times))
    return None


def _shared(i: Instruction, side: int, place: int, single: Instruction) -> SharedProduct:
    sides = ("lhs", "rhs")
    other, name = i.operands[1 - side], sides[1 - side]
    batch: Dims = i.attrs[f"{name}_batch_dims"]
    contracted: Dims = i.attrs.get(f"{name}_contracting_dims", ())
    d = batch[place]
    count = single.array.dims[i.attrs[f"{sides[side]}_batch_dims"][place]]
    dims = other.array.dims
    apart = build.reshape(other, (*dims[:d], count, dims[d] // count, *dims[d + 1 :]))
    attrs = dict(i.attrs)
    attrs[f"{name}_batch_dims"] = tuple(b + (b > d) for b in batch)
    attrs[f"{name}_contracting_dims"] = tuple(c + (c > d) for c in contracted)
    taken = {*attrs[f"{name}_batch_dims"], *attrs[f"{name}_contracting_dims"]}
    free = [k for k in range(len(dims) + 1) if k not in taken]
    own = [single.array.dims[k] for k in range(single.array.rank) if _is_free(i, sides[side], k)]
    theirs = [apart.array.dims[k] for k in free]
    lead = tuple(apart.array.dims[b] for b in attrs[f"{name}_batch_dims"])
    first, second = (theirs, own) if side else (own, theirs)
    at = len(lead) + free.index(d + 1) + (0 if side else len(own))
    operands = (apart, single) if side else (single, apart)
    shape = Shape(i.array.dtype, (*lead, *first, *second))
    dot = make("dot", shape, operands, name=i.name, metadata=i.metadata, **attrs)
    rest = [k for k in range(len(shape.dims)) if k != at]
    return SharedProduct(dot, (*rest[: place + 1], at, *rest[place + 1 :]))


def _is_free(i: Instruction, name: str, k: int) -> bool:
    return k not in (*i.attrs[f"{name}_batch_dims"], *i.attrs.get(f"{name}_contracting_dims", ()))
