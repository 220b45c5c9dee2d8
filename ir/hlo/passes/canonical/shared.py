"""Products with repeated operands: keys and values that several query heads share."""

from __future__ import annotations

from typing import NamedTuple

from ...nodes import Instruction, Shape
from ...patterns import build
from ...rewrite import make

Dims = tuple[int, ...]


class SharedProduct(NamedTuple):
    """A ``dot`` on what was repeated: by ``order`` and a reshape it becomes the one before."""

    dot: Instruction
    order: Dims


def share_repeated(i: Instruction) -> SharedProduct | None:
    """dot(x[b*g, m, k], repeat(y[b, k, n]))  ->  dot(x[b, g*m, k], y), and reshapes

    A batch dimension of one operand is a dimension and a broadcast one inside of it: what is
    repeated is read where it is, and its repetitions are rows of the other operand. None if neither
    operand is so.
    """
    batch = (i.attrs.get("lhs_batch_dims", ()), i.attrs.get("rhs_batch_dims", ()))
    for side in (1, 0):
        for place, d in enumerate(batch[side]):
            if (single := _unrepeated(i.operands[side], d)) is not None:
                return _shared(i, side, place, single)
    return None


def _unrepeated(x: Instruction, d: int) -> Instruction | None:
    """Return ``x`` with dimension ``d`` as it was before it was repeated; None if it was not."""
    if x.opcode == "broadcast" and x.operands[0].array.rank and x.array.dims[d] > 1:
        mapped = x.attrs.get("dimensions", ())
        once = (*x.array.dims[:d], 1, *x.array.dims[d + 1 :])
        return None if d in mapped else build.broadcast(x.operands[0], mapped, once)
    if x.opcode != "reshape" or x.operands[0].opcode != "broadcast":
        return None
    wide = x.operands[0]
    dims, mapped = wide.array.dims, wide.attrs.get("dimensions", ())
    inner = d + 1
    if (*dims[:d], 0, *dims[d + 2 :]) != (*x.array.dims[:d], 0, *x.array.dims[d + 1 :]):
        return None
    if inner in mapped or (d not in mapped and dims[d] != 1) or dims[inner] < 2:
        return None
    kept = tuple(m - (m > inner) for m in mapped)
    return build.broadcast(wide.operands[0], kept, (*dims[:inner], *dims[inner + 1 :]))


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
