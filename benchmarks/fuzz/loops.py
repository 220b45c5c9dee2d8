"""Small programs for random schedules: products, windows, rows, chains, pairs; exact in floats."""

from __future__ import annotations

import nestwright.te as te
from nestwright.ir.loop.nodes import Func


def matmul() -> Func:
    """Return ``D = max(A B, 0)`` for ``A [5, 3]`` and ``B [3, 7]``."""
    a, b = te.placeholder((5, 3), name="A"), te.placeholder((3, 7), name="B")
    k = te.reduce_axis(3, "k")
    c = te.compute((5, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((5, 7), lambda i, j: te.maximum(c[i, j], 0.0), name="D")
    return te.create_func([a, b, d], name="matmul")


def two_products() -> Func:
    """Return ``D = (A B) E``: a product of a product."""
    a, b, e = (te.placeholder(s, name=n) for s, n in (((4, 3), "A"), ((3, 5), "B"), ((5, 2), "E")))
    k, m = te.reduce_axis(3, "k"), te.reduce_axis(5, "m")
    c = te.compute((4, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((4, 2), lambda i, j: te.sum(c[i, m] * e[m, j], axis=m), name="D")
    return te.create_func([a, b, e, d], name="two_products")


def convolution() -> Func:
    """Return a padded convolution along one dimension with an epilogue: ``Z = conv(pad(X), W) +
    1``.
    """
    x, w = te.placeholder((2, 8), name="X"), te.placeholder((3, 2, 3), name="W")
    c, r = te.reduce_axis(2, "c"), te.reduce_axis(3, "r")
    p = te.compute(
        (2, 10),
        lambda i, j: te.select((j >= 1) & (j < 9), x[i, te.minimum(te.maximum(j - 1, 0), 7)], 0.0),
        name="P",
    )
    y = te.compute((3, 8), lambda f, j: te.sum(p[c, j + r] * w[f, c, r], axis=[c, r]), name="Y")
    z = te.compute((3, 8), lambda f, j: y[f, j] + 1.0, name="Z")
    return te.create_func([x, w, z], name="convolution")


def normalized_rows() -> Func:
    """Two reductions and a broadcast, as softmax has; exact in floats."""
    a = te.placeholder((4, 6), name="A")
    k, m = te.reduce_axis(6, "k"), te.reduce_axis(6, "m")
    top = te.compute((4,), lambda i: te.max(a[i, k], axis=k), name="Top")
    e = te.compute((4, 6), lambda i, j: top[i] - a[i, j], name="E")
    s = te.compute((4,), lambda i: te.sum(e[i, m] * e[i, m], axis=m), name="S")
    r = te.compute((4, 6), lambda i, j: e[i, j] * 2.0 + s[i], name="R")
    return te.create_func([a, r], name="normalized_rows")


def chain() -> Func:
    """Return an element-wise chain with a broadcast, a transpose and a reshape on the way."""
    a, b = te.placeholder((6, 5), name="A"), te.placeholder((5,), name="B")
    p = te.compute((6, 5), lambda i, j: a[i, j] * 2.0, name="P")
    q = te.compute((6, 5), lambda i, j: p[i, j] + b[j], name="Q")
    r = te.compute((5, 6), lambda i, j: q[j, i] - p[j, 4 - i], name="R")
    s = te.compute((30,), lambda i: te.maximum(r[i // 6, i % 6], 1.0), name="S")
    return te.create_func([a, b, s], name="chain")


def two_outputs() -> Func:
    """Two outputs: an element-wise result, and its product with a row sum of it."""
    a = te.placeholder((7, 4), name="A")
    k = te.reduce_axis(4, "k")
    p = te.compute((7, 4), lambda i, j: a[i, j] + 1.0, name="P")
    s = te.compute((7,), lambda i: te.sum(p[i, k], axis=k), name="S")
    t = te.compute((7, 4), lambda i, j: p[i, j] * s[i], name="T")
    return te.create_func([a, p, t], name="two_outputs")


def stencil() -> Func:
    """Return a sum of three neighbors, then differences of those at stride 2."""
    a = te.placeholder((14,), name="A")
    p = te.compute((14,), lambda i: a[i] * 3.0, name="P")
    q = te.compute((12,), lambda i: p[i] + p[i + 1] + p[i + 2], name="Q")
    r = te.compute((5,), lambda i: q[i * 2] - q[i * 2 + 3], name="R")
    return te.create_func([a, r], name="stencil")


def largest() -> Func:
    """Return a reduction of pairs, whose updates must stay in order, and a gather."""
    a = te.placeholder((3, 7), name="A")
    k = te.reduce_axis(7, "k")
    first = te.reduce(
        lambda p, q: (te.maximum(p[0], q[0]), te.select(p[0] >= q[0], p[1], q[1])),
        (float("-inf"), 0),
    )
    v, w = te.compute_many((3,), lambda i: first((a[i, k], te.cast(k, "s32")), axis=k), ("V", "W"))
    g = te.compute((3,), lambda i: a[i, te.cast(w[i], "s64")] + v[i], name="G")
    return te.create_func([a, g], name="largest")


def batched() -> Func:
    """Unit and batch dimensions, a shared subexpression in a reduction."""
    a, b = te.placeholder((2, 1, 5), name="A"), te.placeholder((2, 5, 3), name="B")
    k, m = te.reduce_axis(5, "k"), te.reduce_axis(3, "m")
    c = te.compute((2, 1, 3), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="C")
    s = te.compute(
        (2, 1), lambda n, i: te.sum((c[n, i, m] - 1.0) * (c[n, i, m] - 1.0), axis=m), name="S"
    )
    d = te.compute((2, 1, 3), lambda n, i, j: c[n, i, j] * 2.0 - s[n, i], name="D")
    return te.create_func([a, b, d], name="batched")


PROGRAMS = (
    matmul,
    two_products,
    convolution,
    normalized_rows,
    chain,
    two_outputs,
    stencil,
    largest,
    batched,
)
