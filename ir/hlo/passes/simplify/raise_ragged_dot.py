"""Raising of ragged products that JAX writes as a masked product over all groups at once.

For a CPU, ``jax.lax.ragged_dot(x, w, sizes)`` is the sum over groups g of ``x[g] w[g]``, where
``x[g]`` has zeros for rows that are not from ``start[g]`` to before ``end[g]``, and ``end`` has the
sums of the sizes up to each. That is as many times the work as there are groups. What is raised
differs where a group's operand has infinities or NaN: they stay in the rows of that group.
"""

from __future__ import annotations

from ...meaning.values import simple_op
from ...nodes import HloModule, Instruction, WindowDim
from ...patterns.match import is_splat
from ...rewrite import make, map_computations, rebuild


def raise_ragged_dot(module: HloModule) -> HloModule:
    """``dot(select(start <= row < end, x, 0), w)``  ->  ``ragged-dot(x, w, sizes)``"""
    return map_computations(module, lambda c: rebuild(c, _raised))


def _raised(i: Instruction) -> Instruction | None:
    if i.opcode != "dot" or i.attrs.get("lhs_batch_dims") or i.array.rank != 2:
        return None
    masked, w = i.operands
    summed = (i.attrs.get(f"{side}_contracting_dims", ()) for side in ("lhs", "rhs"))
    places = dict(zip(*summed, strict=True))
    if set(places) != {0, 2} or masked.opcode != "select" or w.array.rank != 3:
        return None
    mask, rows, zero = masked.operands
    x = _spread(rows, (1, 2))
    if x is None or not is_splat(zero, 0) or mask.opcode != "and":
        return None
    ends = [_bound(m) for m in mask.operands]
    found = {name: value for end in ends if end for name, value in (end,)}
    if set(found) != {"start", "end"}:
        return None
    sizes = _summed(found["end"])
    if sizes is None or not _begins(found["start"], found["end"]):
        return None
    attrs = {k: v for k, v in i.attrs.items() if not k.endswith("_dims")}
    attrs |= {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (places[2],)}
    attrs |= {"lhs_ragged_dims": (0,), "rhs_group_dims": (places[0],)}
    operands = (x, w, sizes)
    return make("ragged-dot", i.array, operands, name=i.name, metadata=i.metadata, **attrs)


def _spread(i: Instruction, dims: tuple[int, ...]) -> Instruction | None:
    """Return what is broadcast along all dimensions but these."""
    if i.opcode == "broadcast" and i.attrs.get("dimensions") == dims:
        return i.operands[0]
    return None


def _is_row(i: Instruction) -> bool:
    """True for the index along the second of three dimensions."""
    if i.opcode == "iota":
        return bool(i.attrs["iota_dimension"] == 1)
    line = _spread(i, (1,))
    return line is not None and line.opcode == "iota"


def _bound(i: Instruction) -> tuple[str, Instruction] | None:
    """Return which end of its group a row is compared with, and the vector of those."""
    if i.opcode != "compare":
        return None
    left, right = i.operands
    match i.attrs["direction"]:
        case "LE" if _is_row(right) and (start := _spread(left, (0,))) is not None:
            return "start", start
        case "LT" if _is_row(left) and (end := _spread(right, (0,))) is not None:
            return "end", end
        case _:
            return None


def _summed(ends: Instruction) -> Instruction | None:
    """Return the vector whose sums up to each element are ``ends``."""
    if ends.opcode != "reduce-window" or simple_op(ends.attrs["to_apply"]) != "add":
        return None
    count = ends.array.size
    if ends.attrs["window"] != (WindowDim(count, pad_low=count - 1),):
        return None
    sizes, zero = ends.operands
    return sizes if is_splat(zero, 0) else None


def _begins(starts: Instruction, ends: Instruction) -> bool:
    """True if each group starts where the one before it ends."""
    if starts.opcode != "concatenate" or len(starts.operands) != 2:
        return False
    first, rest = starts.operands
    while first.opcode == "slice":
        first = first.operands[0]
    if not is_splat(first, 0) or rest.opcode != "slice" or rest.operands[0] is not ends:
        return False
    (cut,) = rest.attrs["slice"]
    return (cut.start, cut.limit, cut.stride) == (0, ends.array.size - 1, 1)
