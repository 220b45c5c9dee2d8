"""Trees, linear models and features of ai.onnx.ml, beside plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.errors import ParseError

RNG = np.random.default_rng(17)
DOMAIN = "ai.onnx.ml"


def grown(trees, depth, features):
    """Random trees: lists of nodes ``(tree, node, feature, mode, split, yes, no)``, leaves last."""
    rows = []
    for tree in range(trees):
        count = 2**depth - 1
        for k in range(count):
            mode = RNG.choice(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"])
            split = float(RNG.standard_normal())
            rows.append((tree, k, int(RNG.integers(features)), mode, split, 2 * k + 1, 2 * k + 2))
        rows += [(tree, count + k, 0, "LEAF", 0.0, 0, 0) for k in range(count + 1)]
    return rows


TESTS = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GT": np.greater,
    "BRANCH_GTE": np.greater_equal,
}


def walked(rows, x):
    """The leaves ``(tree, node)`` that a row of features ends in."""
    table = {(r[0], r[1]): r for r in rows}
    for tree in sorted({r[0] for r in rows}):
        at = table[tree, 0]
        while at[3] != "LEAF":
            passed = TESTS[at[3]](x[at[2]], np.float32(at[4]))
            at = table[tree, at[5] if passed else at[6]]
        yield at[0], at[1]


def listed(rows):
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    return {f"nodes_{n}": list(c) for n, c in zip(names, zip(*rows, strict=True), strict=True)}


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_a_forest_of_several_targets(check, how):
    rows, x = grown(5, 3, 4), RNG.standard_normal((7, 4)).astype(np.float32)
    leaves = [(r[0], r[1]) for r in rows if r[3] == "LEAF"]
    keys = [key for key in leaves for _ in range(2)]
    weights = RNG.standard_normal(len(keys)).astype(np.float32)
    of = {leaf: weights[2 * n : 2 * n + 2] for n, leaf in enumerate(leaves)}
    combine = {"SUM": np.sum, "AVERAGE": np.mean, "MIN": np.min, "MAX": np.max}[how]
    wanted = [combine([of[key] for key in walked(rows, row)], 0) for row in x]
    check(
        "TreeEnsembleRegressor",
        [x],
        wanted=[np.stack(wanted) + np.float32([1, -1])],
        domain_=DOMAIN,
        n_targets=2,
        aggregate_function=how,
        target_treeids=[k[0] for k in keys],
        target_nodeids=[k[1] for k in keys],
        target_ids=[0, 1] * len(leaves),
        target_weights=weights.tolist(),
        base_values=[1.0, -1.0],
        **listed(rows),
    )


def test_a_forest_of_classes_by_softmax(check):
    rows, x = grown(4, 2, 3), RNG.standard_normal((6, 3)).astype(np.float32)
    leaves = [(r[0], r[1]) for r in rows if r[3] == "LEAF"]
    ids = RNG.integers(0, 3, len(leaves))
    weights = RNG.standard_normal(len(leaves)).astype(np.float32)
    scores = np.zeros((6, 3), np.float32)
    for row, total in zip(x, scores, strict=True):
        for key in walked(rows, row):
            total[ids[leaves.index(key)]] += weights[leaves.index(key)]
    e = np.exp(scores - scores.max(1, keepdims=True))
    labels = np.array([7, 5, 9])
    check(
        "TreeEnsembleClassifier",
        [x],
        2,
        wanted=[labels[scores.argmax(1)], e / e.sum(1, keepdims=True)],
        domain_=DOMAIN,
        classlabels_int64s=labels.tolist(),
        class_treeids=[k[0] for k in leaves],
        class_nodeids=[k[1] for k in leaves],
        class_ids=ids.tolist(),
        class_weights=weights.tolist(),
        post_transform="SOFTMAX",
        **listed(rows),
    )


def test_a_missing_feature_goes_where_the_node_says(check):
    rows = [
        (0, 0, 0, "BRANCH_LT", 0.0, 1, 2),
        (0, 1, 0, "LEAF", 0.0, 0, 0),
        (0, 2, 0, "LEAF", 0.0, 0, 0),
    ]
    x = np.array([[np.nan], [-1], [1]], np.float32)
    for tracks, first in ((0, 20.0), (1, 10.0)):
        check(
            "TreeEnsembleRegressor",
            [x],
            wanted=[np.array([[first], [10], [20]], np.float32)],
            domain_=DOMAIN,
            n_targets=1,
            target_treeids=[0, 0],
            target_nodeids=[1, 2],
            target_ids=[0, 0],
            target_weights=[10.0, 20.0],
            nodes_missing_value_tracks_true=[tracks, 0, 0],
            **listed(rows),
        )


STUMP = [
    (0, 0, 0, "BRANCH_LEQ", -1.5, 1, 2),
    (0, 1, 0, "LEAF", 0.0, 0, 0),
    (0, 2, 0, "BRANCH_LEQ", 0.5, 3, 4),
    (0, 3, 0, "LEAF", 0.0, 0, 0),
    (0, 4, 0, "LEAF", 0.0, 0, 0),
]


@pytest.mark.parametrize("dtype", ["int64", "int32", "float64"])
def test_splits_and_scores_of_trees_are_floats_whatever_the_features_are(check, dtype):
    given = {"domain_": DOMAIN, **listed(STUMP)}
    for kind in ("target", "class"):
        given |= {f"{kind}_treeids": [0] * 3, f"{kind}_nodeids": [1, 3, 4]}
        given |= {f"{kind}_ids": [0] * 3, f"{kind}_weights": [0.25, 0.5, 0.75]}
    x, wanted = np.array([[-2], [-1], [1]], dtype), np.array([[0.25], [0.5], [0.75]], np.float32)
    ours = {k: v for k, v in given.items() if not k.startswith("class")}
    check("TreeEnsembleRegressor", [x], wanted=[wanted], n_targets=1, **ours)
    ours = {k: v for k, v in given.items() if not k.startswith("target")}
    both = np.concatenate([1 - wanted, wanted], 1)
    labels = np.array([5, 5, 9])
    check(
        "TreeEnsembleClassifier", [x], 2, wanted=[labels, both], classlabels_int64s=[5, 9], **ours
    )


def test_weights_of_one_class_below_0_are_no_probabilities(check):
    x, scores = np.array([[-2], [-1], [1]], np.float32), np.array([-0.3, 0.2, 0.7], np.float32)
    given = {"domain_": DOMAIN, "class_treeids": [0] * 3, "class_nodeids": [1, 3, 4]}
    given |= {"class_ids": [0] * 3, "class_weights": scores.tolist(), **listed(STUMP)}
    wanted = [np.array([0, 1, 1]), np.stack([-scores, scores], 1)]
    check("TreeEnsembleClassifier", [x], 2, wanted=wanted, classlabels_int64s=[0, 1], **given)


def test_linear_models(check):
    x, w, b = RNG.standard_normal((5, 3)), RNG.standard_normal((4, 3)), RNG.standard_normal(4)
    x, w, b = (t.astype(np.float32) for t in (x, w, b))
    given = {"coefficients": w.ravel().tolist(), "intercepts": b.tolist(), "domain_": DOMAIN}
    scores = x @ w.T + b
    check("LinearRegressor", [x], wanted=[scores], targets=4, **given)
    wanted = [np.array([3, 1, 2, 8])[scores.argmax(1)], 1 / (1 + np.exp(-scores))]
    given |= {"classlabels_ints": [3, 1, 2, 8], "post_transform": "LOGISTIC"}
    check("LinearClassifier", [x], 2, wanted=wanted, **given)


def test_labels_of_keys_and_a_default(check):
    x = np.array([[1.5, np.nan], [7, -2]], np.float32)
    wanted = [np.array([[10, 30], [-5, 20]])]
    keys = {"keys_floats": [1.5, -2.0, float("nan")], "values_int64s": [10, 20, 30]}
    check("LabelEncoder", [x], wanted=wanted, domain_=DOMAIN, default_int64=-5, version_=2, **keys)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalized_rows(check, norm):
    x = np.array([[3, -4, 0], [0, 0, 0]], np.float32)
    size = {"MAX": 4, "L1": 7, "L2": 5}[norm]
    check("Normalizer", [x], wanted=[x / np.float32(size)], domain_=DOMAIN, norm=norm)


def test_features(check):
    x = np.array([[1, np.nan, 3]], np.float32)
    wanted = [np.array([[1, 5, 3]], np.float32)]
    missing = {"imputed_value_floats": [5.0], "replaced_value_float": float("nan")}
    check("Imputer", [x], wanted=wanted, domain_=DOMAIN, **missing)
    check(
        "Binarizer",
        [wanted[0]],
        wanted=[np.array([[0, 1, 1]], np.float32)],
        domain_=DOMAIN,
        threshold=2.0,
    )
    wanted = [np.array([[[0, 1], [0, 0]]], np.float32)]
    check("OneHotEncoder", [np.array([[4, 9]])], wanted=wanted, domain_=DOMAIN, cats_int64s=[3, 4])
    wanted = [np.array([[-1, 2]], np.float32)]
    scaled = {"offset": [1.0, 2.0], "scale": [1.0, 0.5], "domain_": DOMAIN}
    check("Scaler", [np.array([[0, 6]], np.float32)], wanted=wanted, **scaled)


def test_a_map_of_scores_is_their_array(check):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    check("ZipMap", [x], wanted=[x], domain_=DOMAIN, classlabels_strings=["a", "b", "c"])
    with pytest.raises(ParseError, match="gives 2 labels to an array"):
        check("ZipMap", [x], wanted=[x], domain_=DOMAIN, classlabels_int64s=[1, 2])
