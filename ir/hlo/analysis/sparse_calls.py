"""Custom calls on sparse matrices, as gathers and scatters of HLO."""

from __future__ import annotations

from ...dtypes import DType
from ..nodes import Computation, Instruction, Shape, WindowDim
from ..patterns import build
from ..rewrite import assemble, make, parameter

CSR_PRODUCT = "cpu_csr_sparse_dense_ffi"
"""What JAX writes for ``BCSR @ x`` on a CPU."""


def csr_product(i: Instruction) -> Instruction | None:
    """Return the product of ``(numbers[n], starts[rows + 1], columns[n])`` with a dense array.

    Each number times its row of the dense array is added to the row of the result that it is in;
    numbers before the first start or after the last one are in none.
    """
    match i.shape, [o.shape for o in i.operands]:
        case Shape() as made, [Shape() as numbers, Shape() as starts, Shape() as at, Shape() as x]:
            count, more = numbers.dims, made.dims[1:]
            fits = made.rank in (1, 2) and x.dims[1:] == more and x.rank == made.rank
            fits &= starts.dims == (made.dims[0] + 1,) and at.dims == count and len(count) == 1
            fits &= made.dtype == numbers.dtype == x.dtype and starts.dtype.is_int
            if not fits or not at.dtype.is_int:
                return None
        case _:
            return None
    values, begins, columns, dense = i.operands
    if 0 in (*count, *made.dims, x.dims[0]):
        return build.full(0, made.dtype, made.dims)
    rows = make(
        "gather",
        Shape(x.dtype, (*count, *more)),
        (dense, build.reshape(columns, (*count, 1))),
        offset_dims=tuple(range(1, x.rank)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, *more),
    )
    terms = build.pointwise("multiply", build.broadcast(values, (0,), rows.array.dims), rows)
    return _added(build.full(0, made.dtype, made.dims), _row_of_each(begins, count[0]), terms)


def _row_of_each(starts: Instruction, count: int) -> Instruction:
    """Return the number of starts up to each place, less one."""
    dtype = starts.array.dtype
    ones = build.full(1, dtype, starts.array.dims)
    begun = _added(build.full(0, dtype, (count,)), starts, ones)
    total = make(
        "reduce-window",
        begun.array,
        (begun, build.scalar(0, dtype)),
        window=(WindowDim(count, pad_low=count - 1),),
        to_apply=_sum(dtype),
    )
    return build.pointwise("subtract", total, build.full(1, dtype, (count,)))


def _added(base: Instruction, at: Instruction, rows: Instruction) -> Instruction:
    """Return ``base`` with each of the rows added at its place, if there is such a place."""
    return make(
        "scatter",
        base.array,
        (base, build.reshape(at, (*at.array.dims, 1)), rows),
        update_window_dims=tuple(range(1, base.array.rank)),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
        to_apply=_sum(base.array.dtype),
    )


def _sum(dtype: DType) -> Computation:
    a, b = (parameter(n, Shape(dtype, ()), name) for n, name in enumerate("ab"))
    return assemble("sum", (a, b), make("add", Shape(dtype, ()), (a, b)))
