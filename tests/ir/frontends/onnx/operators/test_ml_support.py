"""Support vector machines of ai.onnx.ml, beside plain NumPy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from nestwright.ir.errors import ParseError, UnsupportedError

DOMAIN = "ai.onnx.ml"
GAMMA, OFFSET, DEGREE = 0.25, 0.5, 3


def numbers(*dims):
    return np.random.default_rng(sum(dims)).standard_normal(dims).astype(np.float32)


def kernel(kind, x, vectors):
    product = x.astype(np.float64) @ vectors.T.astype(np.float64)
    match kind:
        case "LINEAR":
            return product
        case "POLY":
            return (product * GAMMA + OFFSET) ** DEGREE
        case "SIGMOID":
            return np.tanh(product * GAMMA + OFFSET)
        case _:
            return np.exp(-GAMMA * ((x[:, None] - vectors[None]) ** 2).sum(2))


KINDS = ["LINEAR", "POLY", "SIGMOID", "RBF"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_a_regression_by_each_kernel(check, kind, one_class):
    x, vectors, weights = numbers(5, 3), numbers(4, 3), numbers(4)
    found = kernel(kind, x, vectors) @ weights[:, None] + 0.125
    check(
        "SVMRegressor",
        [x],
        wanted=[(np.where(found > 0, 1, -1) if one_class else found).astype(np.float32)],
        domain_=DOMAIN,
        kernel_type=kind,
        kernel_params=[GAMMA, OFFSET, float(DEGREE)],
        support_vectors=vectors.ravel().tolist(),
        n_supports=4,
        coefficients=weights.tolist(),
        rho=[0.125],
        one_class=one_class,
    )


def test_a_regression_without_vectors_is_linear(check):
    x, weights = numbers(5, 3), numbers(3)
    given = {"coefficients": weights.tolist(), "rho": [0.5]}
    check("SVMRegressor", [x], wanted=[x @ weights[:, None] + 0.5], domain_=DOMAIN, **given)


def machine(classes, kind, **more):
    """Attributes of a machine with two vectors of each class, and its decisions for rows."""
    total = 2 * classes
    vectors, weights = numbers(total, 3), numbers(classes - 1, total)
    each = list(combinations(range(classes), 2))
    rho = numbers(len(each), 1).ravel()
    given = {
        "kernel_type": kind,
        "kernel_params": [GAMMA, OFFSET, float(DEGREE)],
        "support_vectors": vectors.ravel().tolist(),
        "vectors_per_class": [2] * classes,
        "coefficients": weights.ravel().tolist(),
        "rho": rho.tolist(),
        "classlabels_ints": [10 * k + 1 for k in range(classes)],
        "domain_": DOMAIN,
        **more,
    }

    def decisions(x):
        near = kernel(kind, x, vectors)
        columns = []
        for n, (i, j) in enumerate(each):
            first, second = slice(2 * i, 2 * i + 2), slice(2 * j, 2 * j + 2)
            one, other = (
                near[:, first] @ weights[j - 1, first],
                near[:, second] @ weights[i, second],
            )
            columns.append(one + other + rho[n])
        return np.stack(columns, 1).astype(np.float32)

    return given, decisions


def winners(decided, classes):
    votes = np.zeros((len(decided), classes))
    for n, (i, j) in enumerate(combinations(range(classes), 2)):
        votes[:, i] += decided[:, n] > 0
        votes[:, j] += decided[:, n] <= 0
    return (votes.argmax(1) * 10 + 1).astype(np.int64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 4])
def test_classes_by_votes_of_pairs(check, classes, kind):
    x = numbers(20, 3)
    given, decisions = machine(classes, kind)
    found = decisions(x)
    scores = np.concatenate([-found, found], 1) if classes == 2 else found
    check("SVMClassifier", [x], 2, wanted=[winners(found, classes), scores], **given)


def coupled(won):
    """The probabilities that fit those of pairs best: a constrained least-squares problem."""
    count = len(won)
    q = -won.T * won
    q[np.diag_indices(count)] = (won**2).sum(0)
    system = np.block([[q, np.ones((count, 1))], [np.ones((1, count)), np.zeros((1, 1))]])
    return np.linalg.solve(system, np.eye(count + 1)[count])[:count]


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_probabilities_are_coupled(check, classes):
    x = numbers(20, 3)
    each = list(combinations(range(classes), 2))
    a, b = -1 - abs(numbers(len(each), 2)[:, 0]), numbers(len(each), 3)[:, 0]
    given, decisions = machine(classes, "RBF", prob_a=a.tolist(), prob_b=b.tolist())
    found = decisions(x)
    sure = 1 / (1 + np.exp(found * a + b))
    wanted = []
    for row in sure:
        won = np.zeros((classes, classes))
        for n, (i, j) in enumerate(each):
            won[i, j], won[j, i] = row[n], 1 - row[n]
        wanted.append(coupled(won))
    labels = winners(found, classes)
    near = {"atol_": 0.01, "rtol_": 0}  # the rounds end when they are within 0.005 / classes
    check(
        "SVMClassifier",
        [x],
        2,
        wanted=[labels, np.stack(wanted).astype(np.float32)],
        **near,
        **given,
    )


def test_classes_without_vectors_are_linear(check):
    x, weights = numbers(6, 3), numbers(3, 3)
    found = x @ weights.T + 0.25
    given = {"coefficients": weights.ravel().tolist(), "rho": [0.25], "classlabels_ints": [7, 8, 9]}
    wanted = [found.argmax(1) + 7, found]
    check("SVMClassifier", [x], 2, wanted=wanted, domain_=DOMAIN, **given)


def test_what_does_not_fit_is_named(check):
    x = numbers(5, 3)
    given, _ = machine(3, "RBF", classlabels_ints=None, classlabels_strings=["a", "b", "c"])
    with pytest.raises(UnsupportedError, match="its labels are strings"):
        check("SVMClassifier", [x], 2, wanted=[], **given)
    given, _ = machine(3, "RBF")
    with pytest.raises(ParseError, match="which do not make"):
        check("SVMClassifier", [x], 2, wanted=[], **{**given, "coefficients": [1.0, 2.0, 3.0]})
