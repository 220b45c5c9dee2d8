"""Ensembles of trees: every row walks down every tree, a level a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .....arrays import Array
from .....dtypes import DType, f32, s32, s64
from ....lax import control, indexing, reductions, shaping
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator
from .domain import DOMAIN, TRANSFORMS, transformed
from .linear import labels_of

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""Tests of inner nodes by their numbers; older operators name them ``BRANCH_LEQ`` and so on."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees as arrays over their nodes, leaves among them: the feature that is tested, how and with
    what number, the next node if the test holds and if not (a leaf leads to itself), and whether
    a missing feature passes. ``members[node]`` are the numbers of a membership test, NaN around
    them. ``weights[node, target]`` is what a leaf adds, where ``given[node, target]`` holds."""

    feature: Array
    mode: Array
    split: Array
    yes: Array
    no: Array
    missing: Array
    members: Array
    roots: Array
    weights: Array
    given: Array

    @property
    def depth(self) -> int:
        """Return the number of steps from a root to the farthest leaf."""
        at, steps = np.unique(self.roots), 0
        inner = self.yes != np.arange(len(self.yes))
        while inner[at].any():
            if steps > len(inner):
                raise ValueError("the trees have a cycle")
            at = np.unique(np.concatenate([self.yes[at], self.no[at]]))
            steps += 1
        return steps


def leaves_of(x: Term, forest: Forest) -> Term:
    """The leaf that each row of ``x[n, features]`` ends in, for each tree: ``[n, trees]``, s32."""
    site, n = x.site, x.dims[0]

    def at(values: Array, nodes: Term, dtype: DType) -> Term:
        return indexing.take(shaping.literal(site, values, dtype), nodes, 0)

    def step(_: Term, nodes: Term) -> Sequence[Term]:
        value = indexing.take_along_axis(x, at(forest.feature, nodes, s32), 1)
        split, mode = at(forest.split, nodes, x.dtype), at(forest.mode, nodes, s32)
        passed = value <= split
        tests = {1: value < split, 2: value >= split, 3: value > split}
        tests |= {4: value.equals(split), 5: value.differs(split)}
        if (forest.mode == 6).any():
            members = at(forest.members, nodes, x.dtype)
            tests[6] = reductions.any_(shaping.expand_dims(value, [2]).equals(members), [2])
        for number, test in tests.items():
            if (forest.mode == number).any():
                passed = mode.equals(number).select(test, passed)
        if forest.missing.any():
            passed = passed | (value.differs(value) & at(forest.missing, nodes, s32).differs(0))
        return [passed.select(at(forest.yes, nodes, s32), at(forest.no, nodes, s32))]

    roots = shaping.literal(site, forest.roots, s32)
    start = shaping.broadcast_to(roots, (n, len(forest.roots)))
    return control.fori_loop(forest.depth, step, [start])[0]


def aggregated(x: Term, forest: Forest, how: str) -> Term:
    """The leaves' weights of all trees together, ``[n, targets]``: SUM, AVERAGE, MIN or MAX."""
    nodes = leaves_of(x, forest)

    def of_leaves(fill: float) -> Term:
        values = np.where(forest.given, forest.weights, fill)
        return indexing.take(shaping.literal(x.site, values, x.dtype), nodes, 0)

    match how:
        case "SUM":
            return reductions.sum_(of_leaves(0), [1])
        case "AVERAGE":
            return reductions.sum_(of_leaves(0), [1]) / max(len(forest.roots), 1)
        case "MIN":
            found = reductions.min_(of_leaves(np.inf), [1])
        case "MAX":
            found = reductions.max_(of_leaves(-np.inf), [1])
        case _:
            raise ValueError(f"no aggregate_function is called {how}")
    return found.do("is-finite").select(found, 0)


def _members(node: Node, modes: Array) -> Array:
    """The numbers of membership tests, a row for each node."""
    listed = node.tensor("membership_values")
    if listed is None:
        return np.full((len(modes), 1), np.nan)
    parts = np.split(listed, np.flatnonzero(np.isnan(listed)) + 1)[:-1]
    found = np.full((len(modes), max(map(len, parts), default=1)), np.nan)
    for k, part in zip(np.flatnonzero(modes == 6), parts, strict=True):
        found[k, : len(part)] = part
    return found


def _forest(node: Node) -> Forest:
    """The trees of ``TreeEnsemble``: inner nodes, then leaves."""
    modes, splits = node.tensor("nodes_modes"), node.tensor("nodes_splits")
    leaves = node.tensor("leaf_weights")
    if modes is None or splits is None or leaves is None:
        node.malformed("it has no nodes or leaves")
    count, more = len(modes), len(leaves)

    def whole(values: Array, fill: float = 0) -> Array:
        return np.concatenate([values, np.full((more, *values.shape[1:]), fill)])

    def follows(side: str) -> Array:
        to = np.array(node.ints(f"nodes_{side}nodeids"), np.int64)
        leaf = np.array(node.ints(f"nodes_{side}leafs"), np.int64)
        return np.concatenate([to + count * leaf, count + np.arange(more)])

    targets = np.array(node.ints("leaf_targetids"), np.int64)
    weights = np.zeros((count + more, node.int_("n_targets", 1)))
    given = np.zeros(weights.shape, bool)
    weights[count + np.arange(more), targets] = leaves
    given[count + np.arange(more), targets] = True
    missing = node.ints("nodes_missing_value_tracks_true") or [0] * count
    return Forest(
        feature=whole(np.array(node.ints("nodes_featureids"), np.int64)),
        mode=whole(modes.astype(np.int64)),
        split=whole(splits),
        yes=follows("true"),
        no=follows("false"),
        missing=whole(np.array(missing, np.int64)),
        members=whole(_members(node, modes), np.nan),
        roots=np.array(node.ints("tree_roots"), np.int64),
        weights=weights,
        given=given,
    )


@operator("TreeEnsemble", since=5, domain=DOMAIN)
def tree_ensemble(node: Node) -> Term:
    """The weights of the leaves that each row ends in, added or compared, ``[n, targets]``."""
    how = ("AVERAGE", "SUM", "MIN", "MAX")[node.int_("aggregate_function", 1)]
    found = aggregated(node.input(0), _forest(node), how)
    return transformed(node, list(TRANSFORMS)[node.int_("post_transform", 0)], found)


def _older_forest(node: Node, kind: str, targets: int) -> Forest:
    """The trees of the operators that list all nodes with their trees' numbers; ``kind`` is
    ``target`` or ``class``."""
    trees, ids = node.ints("nodes_treeids") or [], node.ints("nodes_nodeids") or []
    place = {key: n for n, key in enumerate(zip(trees, ids, strict=True))}
    names = [m.removeprefix("BRANCH_") for m in node.strings("nodes_modes") or []]
    leaf = np.array([m == "LEAF" for m in names])
    own = np.arange(len(names))

    def follows(side: str) -> Array:
        to = node.ints(f"nodes_{side}nodeids") or []
        pairs = zip(trees, to, own, leaf, strict=True)
        return np.array([n if end else place[tree, k] for tree, k, n, end in pairs], np.int64)

    weights = np.zeros((len(names), targets))
    given = np.zeros(weights.shape, bool)
    rows = zip(node.ints(f"{kind}_treeids") or [], node.ints(f"{kind}_nodeids") or [], strict=True)
    at = [place[key] for key in rows]
    listed = node.tensor(f"{kind}_weights_as_tensor")
    added = np.array(node.floats(f"{kind}_weights")) if listed is None else listed
    into = np.array(node.ints(f"{kind}_ids"), np.int64)
    np.add.at(weights, (np.array(at), into), added)
    given[at, into] = True
    splits = node.tensor("nodes_values_as_tensor")
    first = {tree: place[tree, k] for tree, k in reversed(list(zip(trees, ids, strict=True)))}
    missing = node.ints("nodes_missing_value_tracks_true") or [0] * len(names)
    return Forest(
        feature=np.array(node.ints("nodes_featureids"), np.int64),
        mode=np.array([0 if m == "LEAF" else MODES.index(m) for m in names], np.int64),
        split=np.array(node.floats("nodes_values")) if splits is None else splits,
        yes=follows("true"),
        no=follows("false"),
        missing=np.array(missing, np.int64),
        members=np.full((len(names), 1), np.nan),
        roots=np.array(sorted(first.values()), np.int64),
        weights=weights,
        given=given,
    )


def _features(node: Node) -> Term:
    """The rows in the type that they are compared in: integers are compared as f32."""
    x = node.input(0)
    return x if x.dtype.is_float else x.to(f32)


def _base(node: Node) -> list[float]:
    given = node.tensor("base_values_as_tensor")
    return (node.floats("base_values") or []) if given is None else list(given)


def _based(node: Node, found: Term) -> Term:
    """Sums with base values; in f32, whatever the features are."""
    base = _base(node)
    return (found + node.constant(base, found.dtype) if base else found).to(f32)


@operator("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(node: Node) -> Term:
    """As ``TreeEnsemble``, with base values."""
    forest = _older_forest(node, "target", node.int_("n_targets", 1))
    found = aggregated(_features(node), forest, node.string("aggregate_function", "SUM"))
    return transformed(node, node.string("post_transform", "NONE"), _based(node, found))


def _of_one_class(node: Node, x: Term, own: int, name: str) -> tuple[Term, Term]:
    """The place of the label and the scores of two classes where leaves weigh one alone.

    As in ONNX Runtime, weights of which none is negative are probabilities, whose margin is 0.5.
    """
    if name == "PROBIT" or len(_base(node)) > 1 - own:
        node.unsupported(f"leaves weigh class {own} of two, with base values or by PROBIT")
    forest = _older_forest(node, "class", own + 1)
    one = _based(node, shaping.slice_in_dim(aggregated(x, forest, "SUM"), own, own + 1, 1))
    sure = bool((forest.weights >= 0).all())
    best = shaping.reshape(one > (0.5 if sure else 0.0), (x.dims[0],)).to(s64)
    if own:
        return best, transformed(node, name, shaping.concatenate([one * 0, one], 1))
    if name == "LOGISTIC":
        scores = [(-one).do("logistic"), one.do("logistic")]
    else:
        scores = [1 - one if sure else -one, one]
    return best, shaping.concatenate(scores, 1)


@operator("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(node: Node) -> tuple[Term, Term]:
    """The label of the best class, and the scores of all."""
    labels = node.ints("classlabels_int64s") or []
    ids = node.ints("class_ids") or []
    count = max(len(labels), len(node.strings("classlabels_strings") or []), 1)
    names = labels_of(node, "classlabels_int64s", count)
    name = node.string("post_transform", "NONE")
    x = _features(node)
    if count == 2 and len(set(ids)) == 1:
        best, scores = _of_one_class(node, x, ids[0], name)
        return indexing.take(names, best, 0), scores
    found = _based(node, aggregated(x, _older_forest(node, "class", count), "SUM"))
    best = reductions.argmax(found, 1)
    return indexing.take(names, best, 0), transformed(node, name, found)
