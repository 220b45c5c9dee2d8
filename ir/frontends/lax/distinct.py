"""The rows of a matrix that differ from each other, and which of them each row is."""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import s32
from .bounded import places_of, size, varying
from .control import fori_loop
from .indexing import dynamic_slice, scatter_nd, take
from .order import argsort, sort
from .reductions import all_, cumulative
from .shaping import expand_dims, full, iota, pad, reshape, slice_in_dim
from .term import Term


def lexicographic(x: Term) -> Term:
    """The order in which the rows of a matrix rise, by the first column that differs; stable."""
    n, columns = x.dims

    def body(number: Term, places: Term) -> Sequence[Term]:
        at = columns - 1 - number
        column = reshape(dynamic_slice(x, [0, at], (n, 1)), (n,))
        by = argsort(take(column, places, 0), 0)
        return [take(places, by, 0)]

    if columns == 1:
        return argsort(reshape(x, (n,)), 0)
    start = iota(x.site, s32, (n,))
    return fori_loop(columns, body, [start])[0] if columns else start


def _apart(rows: Term, nan_is_one: bool) -> Term:
    """True for each row that differs from the one before it, and for the first."""
    n = rows.dims[0]
    after, before = slice_in_dim(rows, 1, n, 0), slice_in_dim(rows, 0, n - 1, 0)
    same = after.equals(before)
    if nan_is_one and rows.dtype.is_float:
        same = same | (after.differs(after) & before.differs(before))
    return pad(~all_(same, [1]), 1, [1], [0])


def _if_any(count: Term, rows: Term) -> Term:
    """A number of groups, 0 of no rows."""
    return count.do("minimum", size(rows, 0)) if varying(rows) else count


def _counts(number: Term) -> Term:
    """How many rows have each number."""
    ones = full(number.site, 1, s32, number.dims)
    zeros = full(number.site, 0, s32, number.dims)
    return scatter_nd(zeros, expand_dims(number, [1]), ones, lambda held, new: held + new)


def runs_of(rows: Term) -> tuple[Term, Term, Term, Term]:
    """Return where each run of equal rows of a matrix begins (``[n]``, of which as many count as
    there are runs), the run of each row, the lengths of the runs, and their number.

    No NaN equals another.
    """
    starts = _apart(rows, nan_is_one=False)
    number = cumulative(starts.to(s32), "add", 0) - 1
    places, count = places_of(starts)
    return places, number, _counts(number), _if_any(count, rows)


def groups_of(rows: Term, rising: bool, nan_is_one: bool) -> tuple[Term, Term, Term, Term]:
    """Return the rows of a matrix that differ: where each occurs first (``[n]``, of which as many
    count as there are groups), the group of each row, the sizes of the groups, and their number.

    Groups are in the order of rows if ``rising``, else of their first occurrence. ``nan_is_one``
    says whether a NaN equals another.
    """
    n = rows.dims[0]
    by = lexicographic(rows)
    starts = _apart(take(rows, by, 0), nan_is_one)
    number = cumulative(starts.to(s32), "add", 0) - 1  # the group of each sorted row
    places, count = places_of(starts)
    live = iota(rows.site, s32, (n,)) < count
    first = live.select(take(by, places, 0), n)
    if not rising:
        first, old = sort([first, iota(rows.site, s32, (n,))], 0)
        new = argsort(old, 0)
        number = take(new, number, 0)
    zeros = full(rows.site, 0, s32, (n,))
    group = scatter_nd(zeros, expand_dims(by, [1]), number, unique=True)
    return first.do("minimum", n - 1), group, _counts(number), _if_any(count, rows)
