"""Arguments updated in place: an array that is argument and result is not copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..caches import state, stepped, text


@pytest.mark.parametrize("old", [False, True])
def test_caches_that_are_arguments_and_results(fake: Any, old: bool) -> None:
    exe = fake.executable(text(old))
    args = state()
    keys, values, row, at = (exe.put(a) for a in args)
    product = exe.put(np.zeros((16, 8), np.float32))
    caches = args[:2]
    for turn in range(4):  # submitted, recorded, replayed
        before = fake.count()["cuMemcpyDtoDAsync"]
        want = stepped(*caches, args[2], args[3], old)
        exe(keys, values, row, at, out=(keys, values, product))
        copies = fake.count()["cuMemcpyDtoDAsync"] - before
        assert copies == 0 if not old else copies >= 0, turn
        caches = keys.numpy(), values.numpy()
        for a, b in zip(want, [*caches, product.numpy()], strict=True):
            np.testing.assert_array_equal(b, a)


def test_of_two_results_in_one_array_each_goes_through_memory_of_its_own(fake: Any) -> None:
    exe = fake.executable(text())
    args = state()
    keys, values, row, at = (exe.put(a) for a in args)
    product = exe.put(np.zeros((16, 8), np.float32))
    want = stepped(*args, old=False)
    exe(keys, values, row, at, out=(values, keys, product))  # crossed
    for a, b in zip(want, (values, keys, product), strict=True):
        np.testing.assert_array_equal(b.numpy(), a)


def test_one_array_for_both_caches(fake: Any) -> None:
    exe = fake.executable(text())
    args = state()
    keys, row, at = (exe.put(args[n]) for n in (0, 2, 3))
    others = [exe.put(np.zeros((16, 8), np.float32)) for _ in range(2)]
    want = stepped(args[0], args[0], args[2], args[3], old=False)
    exe(keys, keys, row, at, out=(keys, *others))
    for a, b in zip(want, (keys, *others), strict=True):
        np.testing.assert_array_equal(b.numpy(), a)
