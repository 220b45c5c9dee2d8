"""Products of groups of rows, as mixtures of experts have them: rows sorted by group."""

from __future__ import annotations

from typing import Any

from ...lax.linear import ragged_dot
from ...lax.shaping import concatenate, full, slice_in_dim, transpose
from ...lax.term import Term
from .call import AtenCall, Rows
from .linear import narrow, product


def _sizes(ends: Term) -> Term:
    """The sizes of groups that end before these rows."""
    before = slice_in_dim(ends, 0, ends.dims[0] - 1, 0)
    return ends - concatenate([full(ends.site, 0, ends.dtype, [1]), before], 0)


def _grouped_mm(
    c: AtenCall,
    a: Term,
    b: Term,
    offs: Term | None = None,
    bias: Term | None = None,
    out_dtype: Any = None,
) -> Term:
    """Of two matrices the columns of the first are in groups, of one the rows or columns of it."""
    a, b = c.alike(a, b)
    if bias is not None:
        c.refuse("it has a bias", "add the bias to the rows of each group")
    if offs is None:
        return product(a, b).to(c.dtype)
    sizes = _sizes(offs)
    match a.rank, b.rank:
        case 2, 3:
            made = narrow(a, lambda dtype: ragged_dot(a, b, sizes, (1, 1), 0, 0, dtype))
        case 3, 2:
            made = narrow(a, lambda dtype: ragged_dot(b, a, sizes, (0, 2), 1, 0, dtype))
            made = transpose(made, [1, 0])
        case 2, 2:
            made = narrow(a, lambda dtype: ragged_dot(a, b, sizes, (1, 0), 1, None, dtype))
        case _:
            c.refuse("groups of batches have no ends", "leave out `offs`")
    return made.to(c.dtype)


def _gradients(c: AtenCall, x: Term, weight: Term, offs: Term, gradient: Term) -> list[Term]:
    sizes = _sizes(offs)
    of_rows = narrow(x, lambda dtype: ragged_dot(gradient, weight, sizes, (1, 2), 0, 0, dtype))
    of_weights = narrow(x, lambda dtype: ragged_dot(x, gradient, sizes, (0, 0), 0, None, dtype))
    return [of_rows, of_weights]


ROWS: Rows = {
    "aten._grouped_mm.default": _grouped_mm,
    "transformers.grouped_mm_fallback.default": _grouped_mm,
    "transformers.grouped_mm_fallback_backward.default": _gradients,
}
