"""Products: of matrices, of any dimensions of two arrays, and convolutions."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ...dtypes import DType
from ...errors import VerifyError
from ...hlo.nodes import ConvLabels, Shape, WindowDim
from ...hlo.ops.registry import infer
from .reductions import sum_
from .shaping import broadcast_to, expand_dims, reshape, slice_in_dim, squeeze, transpose
from .term import Dims, Term, innermost

Pairs = tuple[Sequence[int], Sequence[int]]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def dot_general(
    a: Term, b: Term, contract: Pairs, batch: Pairs = ((), ()), dtype: DType | None = None
) -> Term:
    """The sum of products over ``contract``, for each of the ``batch`` dimensions.

    The result has the batch dimensions, then the others of ``a``, then those of ``b``; its
    elements are of ``dtype``, in which the sum is taken, by default the operands' type.
    """
    site = innermost([a, b])
    attrs = {
        "lhs_batch_dims": tuple(batch[0]),
        "lhs_contracting_dims": tuple(contract[0]),
        "rhs_batch_dims": tuple(batch[1]),
        "rhs_contracting_dims": tuple(contract[1]),
    }
    shape = infer("dot", [a.shape, b.shape], attrs)
    assert isinstance(shape, Shape)
    result = Shape(dtype or a.dtype, shape.dims, None, shape.dynamic)
    return Term(site, site.add("dot", result, [a.value, b.value], **attrs))


def ragged_dot(
    a: Term,
    b: Term,
    sizes: Term,
    contract: tuple[int, int],
    ragged: int,
    group: int | None = None,
    dtype: DType | None = None,
) -> Term:
    """The sums of products over one dimension, for groups of ``sizes`` indices of ``ragged``.

    That is a dimension of ``a``. Each group has its own part of ``b`` along ``group``, or without
    one, where sums are over ``ragged``, its own result in a new first dimension.
    """
    site = innermost([a, b, sizes])
    attrs = {
        "lhs_contracting_dims": (contract[0],),
        "rhs_contracting_dims": (contract[1],),
        "lhs_ragged_dims": (ragged,),
    }
    if group is not None:
        attrs["rhs_group_dims"] = (group,)
    shape = infer("ragged-dot", [a.shape, b.shape, sizes.shape], attrs)
    assert isinstance(shape, Shape)
    result = Shape(dtype or a.dtype, shape.dims, None, shape.dynamic)
    return Term(site, site.add("ragged-dot", result, [a.value, b.value, sizes.value], **attrs))


def matmul(a: Term, b: Term, dtype: DType | None = None) -> Term:
    """NumPy's ``matmul``: vectors are rows or columns, leading dimensions broadcast."""
    if not a.rank or not b.rank:
        raise VerifyError("shapes do not fit", "a matrix product takes no scalars")
    if a.rank == 1:
        return squeeze(matmul(expand_dims(a, [0]), b, dtype), [-2 if b.rank > 1 else 0])
    if b.rank == 1:
        return squeeze(matmul(a, expand_dims(b, [1]), dtype), [-1])
    if b.rank == 2:
        return dot_general(a, b, ([a.rank - 1], [0]), dtype=dtype)
    outer = np.broadcast_shapes(a.dims[:-2], b.dims[:-2])
    a = broadcast_to(a, (*outer, *a.dims[-2:]))
    b = broadcast_to(b, (*outer, *b.dims[-2:]))
    batch, k = range(len(outer)), len(outer)
    return dot_general(a, b, ([k + 1], [k]), (batch, batch), dtype)


def einsum(subscripts: str, terms: Sequence[Term]) -> Term:
    """NumPy's ``einsum``: an ellipsis stands for dimensions that broadcast, as those of size 1 do,
    and without ``->`` the result has the letters that are there once, in order.

    ``VerifyError`` where the subscripts do not fit the arrays.
    """
    labels, output = _written_out(subscripts.replace(" ", ""), [t.rank for t in terms])
    terms = _of_one_size(terms, labels)
    held, names = _diagonal(terms[0], labels[0])
    for n, (term, label) in enumerate(zip(terms[1:], labels[1:], strict=True), 1):
        later = set(output).union(*labels[n + 1 :])
        other, others = _diagonal(term, label)
        held, names = _summed(held, names, later | set(others))
        other, others = _summed(other, others, later | set(names))
        held, names = _pair(held, names, other, others, later)
    held, names = _summed(held, names, set(output))
    return transpose(held, [names.index(c) for c in output])


def _written_out(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each array and of the result, one for each dimension."""
    inputs, arrow, output = equation.partition("->")
    labels = inputs.split(",")
    one = r"[a-zA-Z]*(\.\.\.)?[a-zA-Z]*"
    if len(labels) != len(ranks) or not all(re.fullmatch(one, s) for s in (*labels, output)):
        raise VerifyError("shapes do not fit", f"`{equation}` for {len(ranks)} arrays")
    if not arrow:
        single = "".join(c for c in LETTERS if inputs.count(c) == 1)
        output = f"...{single}" if "..." in inputs else single
    hidden = [rank - len(s.replace("...", "")) for rank, s in zip(ranks, labels, strict=True)]
    if any(n < 0 or (n and "..." not in s) for n, s in zip(hidden, labels, strict=True)):
        raise VerifyError("shapes do not fit", f"`{equation}` for ranks {list(ranks)}")
    dots = "".join(c for c in LETTERS if c not in equation)[: max(hidden)]
    labels = [s.replace("...", dots[len(dots) - n :]) for n, s in zip(hidden, labels, strict=True)]
    output = output.replace("...", dots)
    if len(set(output)) < len(output) or not set(output) <= set("".join(labels)):
        raise VerifyError("shapes do not fit", f"`{equation}` has no such result")
    return labels, output


def _of_one_size(terms: Sequence[Term], labels: Sequence[str]) -> list[Term]:
    """The arrays, dimensions of size 1 broadcast to the size that their letter has elsewhere."""
    sizes: dict[str, int] = {}
    for term, label in zip(terms, labels, strict=True):
        for c, d in zip(label, term.dims, strict=True):
            sizes[c] = d if sizes.get(c, 1) == 1 else sizes[c]
    return [
        broadcast_to(term, [sizes[c] for c in label])
        for term, label in zip(terms, labels, strict=True)
    ]


def _pair(a: Term, x: str, b: Term, y: str, later: set[str]) -> tuple[Term, str]:
    """The product of two arrays, summed over the labels that nothing later has."""
    shared = [c for c in x if c in y]
    kept = [c for c in shared if c in later]
    gone = [c for c in shared if c not in later]
    batch = ([x.index(c) for c in kept], [y.index(c) for c in kept])
    contract = ([x.index(c) for c in gone], [y.index(c) for c in gone])
    rest = [c for c in x if c not in shared] + [c for c in y if c not in shared]
    return dot_general(a, b, contract, batch), "".join(kept + rest)


def _summed(x: Term, names: str, kept: set[str]) -> tuple[Term, str]:
    """An array summed over the labels that are not kept."""
    gone = [k for k, c in enumerate(names) if c not in kept]
    return sum_(x, gone), "".join(c for c in names if c in kept)


def _diagonal(x: Term, names: str) -> tuple[Term, str]:
    """An array whose labels are distinct: a label that is there twice means the diagonal."""
    for c in names:
        if names.count(c) > 1:
            first, second = [k for k, d in enumerate(names) if d == c][:2]
            return _diagonal(diagonal(x, first, second), names[:second] + names[second + 1 :])
    return x, names


def diagonal(x: Term, first: int, second: int) -> Term:
    """The elements of equal index in two dimensions of one size, in the place of the first."""
    n = x.dims[first]
    if x.dims[second] != n:
        raise VerifyError("shapes do not fit", f"{list(x.dims)} has no diagonal")
    order = [k for k in range(x.rank) if k not in (first, second)]
    rows = transpose(x, [*order, first, second])
    outer = rows.dims[:-2]
    flat = reshape(rows, (*outer, n * n))
    line = slice_in_dim(flat, 0, max(n * n, 1), flat.rank - 1, n + 1)
    back = list(range(len(outer)))
    back.insert(first, len(outer))
    return transpose(line, back)


def conv_labels(spatial: int) -> ConvLabels:
    """Return the labels of N C spatial, O I spatial and N O spatial."""
    place = tuple(range(2, 2 + spatial))
    return ConvLabels(0, 1, place, 1, 0, place, 0, 1, place)


def conv(
    x: Term,
    kernel: Term,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    *,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    groups: int = 1,
    batch_groups: int = 1,
    labels: ConvLabels | None = None,
    reversal: bool = False,
    dtype: DType | None = None,
) -> Term:
    """A convolution (a correlation, as in neural networks, unless ``reversal``).

    ``labels`` are by default those of ``x[n, c, ..]`` and ``kernel[o, i, ..]``.
    """
    site, spatial = innermost([x, kernel]), x.rank - 2
    places = labels or conv_labels(spatial)
    ones = [1] * spatial
    window = tuple(
        WindowDim(kernel.dims[place], stride, low, high, wide, apart, reversal)
        for place, stride, (low, high), wide, apart in zip(
            places.rhs_spatial,
            strides,
            padding,
            lhs_dilation or ones,
            rhs_dilation or ones,
            strict=True,
        )
    )
    attrs: dict[str, object] = {"window": window, "dim_labels": places}
    if groups != 1:
        attrs["feature_group_count"] = groups
    if batch_groups != 1:
        attrs["batch_group_count"] = batch_groups
    shape = infer("convolution", [x.shape, kernel.shape], attrs)
    assert isinstance(shape, Shape)
    result = Shape(dtype or x.dtype, shape.dims, None, shape.dynamic)
    return Term(site, site.add("convolution", result, [x.value, kernel.value], **attrs))


def conv_transpose(
    x: Term,
    kernel: Term,
    sizes: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
    dilations: Sequence[int],
    *,
    groups: int = 1,
    dtype: DType | None = None,
) -> Term:
    """The adjoint of a convolution of ``[n, o, *sizes]``, padded by ``low`` in front.

    ``x[n, i, ..]`` is that convolution's result, ``kernel[i, o / groups, ..]`` its kernel.
    """
    edges = []
    numbers = zip(x.dims[2:], kernel.dims[2:], sizes, strides, low, dilations, strict=True)
    for d, k, size, stride, before, apart in numbers:
        reach = (k - 1) * apart
        spread = (d - 1) * stride + 1
        edges.append((reach - before, size + before - spread))
    return conv(
        x,
        _transposed(kernel, groups),
        [1] * len(edges),
        edges,
        lhs_dilation=strides,
        rhs_dilation=dilations,
        groups=groups,
        reversal=True,
        dtype=dtype,
    )


def _transposed(kernel: Term, groups: int) -> Term:
    """The kernel ``[i, o / groups, ..]`` of a transposed convolution as ``[o, i / groups, ..]``."""
    inputs, outputs, *spatial = kernel.dims
    apart = reshape(kernel, (groups, inputs // groups, outputs, *spatial))
    swapped = transpose(apart, (0, 2, 1, *range(3, 3 + len(spatial))))
    dims: Dims = (groups * outputs, inputs // groups, *spatial)
    return reshape(swapped, dims)
