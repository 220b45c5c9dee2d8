"""Operations that newer StableHLO does without: ``einsum``, ``torch_index_select``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....hlo.nodes import Instruction, Shape
from ....hlo.shape_text import show_shape
from .plain import array_of, operands, scalar
from .regions import applied
from .to_hlo import Handler, OpSite, Results


def einsum(site: OpSite) -> Results:
    """``ab,bc->ac``; letters that one side alone has, and the result lacks, are summed before."""
    sides, result = _config(site, 2)
    first, second = operands(site, 2)
    left, lhs = _summed(site, first, sides[0], sides[1] + result)
    right, rhs = _summed(site, second, sides[1], sides[0] + result)
    batch = [c for c in lhs if c in rhs and c in result]
    shared = [c for c in lhs if c in rhs and c not in result]
    attrs = {
        "lhs_batch_dims": tuple(lhs.index(c) for c in batch),
        "rhs_batch_dims": tuple(rhs.index(c) for c in batch),
        "lhs_contracting_dims": tuple(lhs.index(c) for c in shared),
        "rhs_contracting_dims": tuple(rhs.index(c) for c in shared),
    }
    product = site.infer("dot", [left, right], **attrs)
    own = [c for c in lhs + rhs if c not in batch + shared]
    return _ordered(site, product, [*batch, *own], result)


def unary_einsum(site: OpSite) -> Results:
    """``ab->b``: letters that the result lacks are summed."""
    sides, result = _config(site, 1)
    value, letters = _summed(site, operands(site, 1)[0], sides[0], result)
    return _ordered(site, value, list(letters), result)


def _config(site: OpSite, count: int) -> tuple[list[str], str]:
    text = site.word("einsum_config").replace(" ", "")
    left, arrow, result = text.partition("->")
    sides = left.split(",")
    known = set("".join(sides))
    good = arrow and len(sides) == count and (result.isalpha() or not result)
    if not good or not set(result) <= known or not all(s.isalpha() or not s for s in sides):
        site.refuse(f"its equation `{text[:60]}` is not of letters for {count} operands")
    for n, side in enumerate(sides):
        if len(set(side)) != len(side) or len(side) != array_of(site, n).rank:
            site.refuse(f"`{side}` does not name the dimensions of {show_shape(array_of(site, n))}")
    if len(set(result)) != len(result):
        site.refuse(f"its result `{result}` names a dimension twice")
    return sides, result


def _summed(site: OpSite, value: Instruction, letters: str, kept: str) -> tuple[Instruction, str]:
    """Summed over the dimensions whose letters are not ``kept``; what is left of the letters."""
    gone = tuple(k for k, c in enumerate(letters) if c not in kept)
    if not gone:
        return value, letters
    dtype = value.array.dtype
    zero = scalar(site, 0, Shape(dtype))
    add = applied(site, "stablehlo.add", dtype)
    total = site.infer("reduce", [value, zero], dimensions=gone, to_apply=add)
    return total, "".join(c for k, c in enumerate(letters) if k not in gone)


def _ordered(site: OpSite, value: Instruction, have: Sequence[str], want: str) -> Instruction:
    order = tuple(have.index(c) for c in want)
    if order == tuple(range(len(order))):
        return value
    return site.infer("transpose", [value], dimensions=order)


def torch_index_select(site: OpSite) -> Results:
    """Rows of one dimension by their numbers; leading ``batch_dims`` dimensions go together."""
    operands(site, 2)
    array, index = array_of(site, 0), array_of(site, 1)
    dim, batch = site.integer("dim"), site.integer("batch_dims", 0)
    if not 0 <= batch <= dim < array.rank or batch > index.rank:
        site.fail(f"dim {dim}, batch_dims {batch} of {show_shape(array)}")
    width = index.rank - batch
    after = array.rank - dim - 1
    attrs: dict[str, Any] = {
        "offset_dims": (*range(batch, dim), *range(dim + width, dim + width + after)),
        "collapsed_slice_dims": (dim,),
        "start_index_map": (dim,),
        "index_vector_dim": index.rank,
    }
    if batch:
        attrs["operand_batching_dims"] = attrs["start_indices_batching_dims"] = tuple(range(batch))
    sizes = tuple(1 if k < batch or k == dim else d for k, d in enumerate(array.dims))
    return site.make("gather", site.operands, slice_sizes=sizes, **attrs)


TABLE: Mapping[str, Handler] = {
    "einsum": einsum,
    "unary_einsum": unary_einsum,
    "torch_index_select": torch_index_select,
}
"""By the operation's name in the dialects StableHLO and MHLO."""
