"""Results whose size follows from values: the first elements of arrays as large as their bound."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(13)


@pytest.mark.parametrize("known", [[], [0]])
@pytest.mark.parametrize("dims", [(7,), (3, 4), (2, 0), (2, 3, 2), ()])
def test_nonzero(check, dims, known):
    x = RNG.integers(0, 3, dims).astype(np.float32)
    wanted = (
        np.array(np.nonzero(np.atleast_1d(x))) if dims else np.zeros((0, int(x != 0)), np.int64)
    )
    check("NonZero", [x], wanted=[wanted], known=known)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("known", [[], [1]])
def test_compress_with_a_short_condition(check, axis, known):
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    condition = np.array([0, 1, 1], bool)
    attributes = {} if axis is None else {"axis": axis}
    check("Compress", [x, condition], known=known, **attributes)


@pytest.mark.parametrize("known", [[], [0]])
@pytest.mark.parametrize("rising", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique_and_where_each_part_is(check, rising, axis, known):
    x = RNG.integers(0, 2, (5, 3)).astype(np.int64)
    y, first, group, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    if not rising:
        order = np.argsort(first)
        rank = np.argsort(order)
        y = np.take(y, order, axis or 0)
        first, counts, group = first[order], counts[order], rank[group]
    attributes = {"sorted": rising} if axis is None else {"sorted": rising, "axis": axis}
    wanted = [y, first, group.reshape(-1), counts]
    check("Unique", [x], 4, wanted=wanted, known=known, **attributes)


def test_sizes_that_constants_decide_are_fixed(read):
    x = np.array([3, 0, 3, 5])
    for op in ("Unique", "NonZero"):
        root = read(op, [x], known=[0]).module.entry.root
        assert root.shape.dims[-1] == 3 and not any(root.shape.dynamic)


def test_unique_counts_nan_once(check):
    x = np.array([np.nan, 1, np.nan, -0.0, 0.0], np.float32)
    (y,) = check("Unique", [x], wanted=[np.array([0, 1, np.nan], np.float32)])
    assert len(y) == 3


def test_rows_without_elements_are_one(check):
    wanted = [np.zeros((0, 1), np.int64), np.array([0]), np.zeros(5, np.int64), np.array([5])]
    check("Unique", [np.zeros((0, 5), np.int64)], 4, wanted=wanted, axis=1)


def suppressed(boxes, scores, most, overlap, threshold):
    """NonMaxSuppression, one box after the other."""
    found = []
    for b, classes in enumerate(scores):
        for c, row in enumerate(classes):
            kept = []
            for n in np.argsort(-row, kind="stable"):
                y1, x1 = np.minimum(boxes[b, :, :2], boxes[b, :, 2:]).T
                y2, x2 = np.maximum(boxes[b, :, :2], boxes[b, :, 2:]).T
                area = (y2 - y1) * (x2 - x1)
                high = np.clip(np.minimum(y2, y2[n]) - np.maximum(y1, y1[n]), 0, None)
                shared = high * np.clip(np.minimum(x2, x2[n]) - np.maximum(x1, x1[n]), 0, None)
                ratio = shared / (area + area[n] - shared)
                if len(kept) < most and row[n] > threshold and all(ratio[kept] <= overlap):
                    kept.append(n)
            found += [[b, c, n] for n in kept]
    return np.array(found, np.int64).reshape(-1, 3)


@pytest.mark.parametrize("most", [0, 1, 3, 50])
@pytest.mark.parametrize("known", [[], [2]])
def test_boxes_are_chosen_as_one_after_the_other(check, most, known):
    boxes = (RNG.random((2, 12, 4)) * 4).astype(np.float32)
    scores = RNG.random((2, 3, 12)).astype(np.float32).round(1)  # with equal ones
    inputs = [np.array([most]), np.array([0.3], np.float32), np.array([0.4], np.float32)]
    wanted = suppressed(boxes, scores, most, 0.3, 0.4)
    check("NonMaxSuppression", [boxes, scores, *inputs], known=known, wanted=[wanted])


@pytest.mark.parametrize("spread", [40, 1])  # the best are enough, or all are taken
def test_of_many_boxes_the_best_are_looked_at_first(check, spread):
    corner = RNG.random((1, 600, 2)) * spread
    boxes = np.concatenate([corner, corner + 1 + RNG.random((1, 600, 2))], -1).astype(np.float32)
    far = np.argsort(corner.sum(-1))[0, -40:]
    scores = RNG.random((1, 2, 600)).astype(np.float32).round(2)
    if spread == 1:
        boxes[0, far] += 9 + 3 * np.arange(40)[:, None]
        scores[:, :, far] = 0.01  # the last that are chosen
    scores[0, 0, 5] = np.nan
    wanted = suppressed(boxes, np.nan_to_num(scores, nan=-1), 20, 0.2, 0)
    assert len(wanted) == 40
    inputs = [np.array([20]), np.array([0.2], np.float32), np.array([0], np.float32)]
    check("NonMaxSuppression", [boxes, scores, *inputs], known=[2], wanted=[wanted])


def test_no_box_is_chosen_without_a_limit(check):
    boxes, scores = np.ones((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    check("NonMaxSuppression", [boxes, scores], wanted=[np.zeros((0, 3), np.int64)])
