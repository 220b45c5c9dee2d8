"""Support vector machines: regression, classification, and the probabilities of classes."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from .....dtypes import f32, pred, s32, s64
from ....lax import control, functions, indexing, linear, reductions, shaping
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator
from .domain import DOMAIN, transformed
from .linear import labels_of

_TINY = 1e-7  # no pair of classes is surer than this


def _rows(node: Node) -> Term:
    x = node.input(0).to(f32)
    return x if x.rank == 2 else shaping.reshape(x, (-1, x.dims[-1] if x.rank else 1))


def _floats(node: Node, name: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(node.floats(name) or [], np.float32)


def _table(node: Node, name: str, rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """The numbers of an attribute as so many rows."""
    given = _floats(node, name)
    if not rows or not given.size or given.size % rows:
        node.malformed(f"{name} has {given.size} numbers, which do not make {rows} rows")
    return given.reshape(rows, -1)


def _similar(node: Node, x: Term, vectors: Term) -> Term:
    """The kernel of each row with each support vector: ``[n, vectors]``."""
    kind = node.string("kernel_type", "LINEAR")
    gamma, offset, degree = (*(node.floats("kernel_params") or []), 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":  # differences, since |a|² - 2ab + |b|² loses digits of near vectors
        apart = shaping.expand_dims(x, [1]) - shaping.expand_dims(vectors, [0])
        return (reductions.sum_(apart * apart, [2]) * -gamma).do("exponential")
    product = linear.matmul(x, shaping.transpose(vectors, (1, 0)))
    match kind:
        case "LINEAR":
            return product
        case "POLY":
            return (product * gamma + offset) ** degree
        case "SIGMOID":
            return (product * gamma + offset).do("tanh")
        case _:
            node.malformed(f"kernel_type is `{kind}`")


@operator("SVMRegressor", domain=DOMAIN)
def svm_regressor(node: Node) -> Term:
    """One number for each row, ``[n, 1]``; of one class, 1 where it is positive, else -1."""
    x, count = _rows(node), node.int_("n_supports", 0)
    if count:
        x = _similar(node, x, node.constant(_table(node, "support_vectors", count), f32))
    found = linear.matmul(x, node.constant(_table(node, "coefficients", 1).T, f32))
    rho = _floats(node, "rho")[:1]
    found = found + node.constant(rho, f32) if rho.size else found
    if node.int_("one_class", 0):
        return (found > 0).to(f32) * 2 - 1
    return transformed(node, node.string("post_transform", "NONE"), found)


@operator("SVMClassifier", domain=DOMAIN)
def svm_classifier(node: Node) -> tuple[Term, Term]:
    """The label of each row, and its scores: of pairs of classes, of classes where the model has no
    vectors, or probabilities; a single score is that of the second class of two."""
    labels = len(node.ints("classlabels_ints") or node.strings("classlabels_strings") or [])
    counts = node.ints("vectors_per_class") or []
    names = labels_of(node, "classlabels_ints", max(labels, len(counts), 2))
    name = node.string("post_transform", "NONE")
    if sum(counts) == 0:
        weights = _table(node, "coefficients", max(labels, 1))
        found = linear.matmul(_rows(node), node.constant(weights.T, f32))
        found = found + node.constant(_floats(node, "rho")[:1], f32)
        best = reductions.argmax(found, 1, s64)
        if labels < 2:
            best = (shaping.reshape(found, (found.dims[0],)) > 0).to(s64)
            names = node.constant([0, 1], s64)
        return indexing.take(names, best, 0), transformed(node, name, found)
    pairs = _pairs(node, counts)
    best = reductions.argmax(_votes(node, pairs, len(counts)), 1, s64)
    chosen = indexing.take(names, best, 0)
    if node.floats("prob_a"):
        return chosen, transformed(node, name, _probabilities(node, pairs, len(counts)))
    if len(counts) == 2:
        pairs = shaping.concatenate([-pairs, pairs], 1)
    return chosen, transformed(node, name, pairs)


def _pairs(node: Node, counts: list[int]) -> Term:
    """The decision between each two classes, positive for the first: ``[n, pairs]``."""
    classes, total = len(counts), sum(counts)
    vectors = _table(node, "support_vectors", total)
    given = _table(node, "coefficients", classes - 1)
    ends = np.cumsum([0, *counts])
    if given.shape[1] != total:
        node.malformed(f"coefficients are of {given.shape[1]} vectors, and there are {total}")
    each = list(combinations(range(classes), 2))
    weights = np.zeros((total, len(each)), np.float32)
    for n, (i, j) in enumerate(each):
        first, second = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        weights[first, n] = given[j - 1, first]
        weights[second, n] = given[i, second]
    near = _similar(node, _rows(node), node.constant(vectors, f32))
    return linear.matmul(near, node.constant(weights, f32)) + node.constant(
        _floats(node, "rho"), f32
    )


def _votes(node: Node, pairs: Term, classes: int) -> Term:
    """How many decisions each class has won."""
    each = list(combinations(range(classes), 2))
    first, second = (np.eye(classes, dtype=np.float32)[[p[k] for p in each]] for k in (0, 1))
    won = (pairs > 0).to(f32)
    lost = 1 - won
    return linear.matmul(won, node.constant(first, f32)) + linear.matmul(
        lost, node.constant(second, f32)
    )


def _probabilities(node: Node, pairs: Term, classes: int) -> Term:
    """The probability of each class, ``[n, classes]``, from those of pairs, as libsvm couples them.

    They minimize the sum of ``(r_ji p_i - r_ij p_j)²``, by rounds that end for a row when it is
    near enough, so that they are the numbers that other libraries give.
    """
    a, b = (node.constant(_floats(node, f"prob_{k}"), f32) for k in "ab")
    sure = functions.clamp(functions.sigmoid(-(pairs * a + b)), _TINY, 1 - _TINY)
    table = np.full((classes, classes), 2 * pairs.dims[1], np.int32)
    for n, (i, j) in enumerate(combinations(range(classes), 2)):
        table[i, j], table[j, i] = n, n + pairs.dims[1]
    both = shaping.concatenate(
        [sure, 1 - sure, shaping.full(sure.site, 0, f32, (sure.dims[0], 1))], 1
    )
    won = indexing.take(shaping.transpose(both, (1, 0)), node.constant(table, s32), 0)
    return shaping.transpose(_coupled(won, classes), (1, 0))


def _coupled(won: Term, classes: int) -> Term:
    """``[classes, n]`` of ``won[i, j, n]``, the probability of ``i`` against ``j``."""
    rows = won.dims[2]
    lost = shaping.transpose(won, (1, 0, 2))
    own = shaping.literal(won.site, np.eye(classes, dtype=bool)[:, :, None], pred)
    squares = shaping.expand_dims(reductions.sum_(lost * lost, [1]), [1])
    q = shaping.broadcast_to(own, won.dims).select(
        shaping.broadcast_to(squares, won.dims), -(lost * won)
    )
    start = shaping.full(won.site, 1 / classes, f32, (classes, rows))

    def missed(p: Term) -> tuple[Term, Term, Term]:
        qp = reductions.sum_(q * shaping.expand_dims(p, [0]), [1])
        pqp = reductions.sum_(p * qp, [0], keep=True)
        return qp, pqp, reductions.max_((qp - pqp).do("abs"), [0], keep=True)

    def going(number: Term, p: Term) -> Term:
        far = reductions.any_(missed(p)[2] >= 0.005 / classes)
        return far & (number < max(100, classes))

    def better(number: Term, p: Term) -> list[Term]:
        qp, pqp, error = missed(p)
        moved = control.fori_loop(classes, step, [p, qp, pqp])[0]
        near = shaping.broadcast_to(error < 0.005 / classes, p.dims)
        return [number + 1, near.select(p, moved)]

    def step(t: Term, p: Term, qp: Term, pqp: Term) -> list[Term]:
        line = shaping.squeeze(indexing.dynamic_slice(q, [t, 0, 0], [1, classes, rows]), [0])
        corner = indexing.dynamic_slice(line, [t, 0], [1, rows])
        mine = indexing.dynamic_slice(qp, [t, 0], [1, rows])
        by = (pqp - mine) / corner
        up = 1 + by
        raised = indexing.dynamic_slice(p, [t, 0], [1, rows]) + by
        made = indexing.dynamic_update_slice(p, raised, [t, 0]) / up
        return [made, (qp + by * line) / up, (pqp + by * (by * corner + 2 * mine)) / (up * up)]

    zero = shaping.full(won.site, 0, s32)
    return control.while_loop(going, better, [zero, start])[1]
