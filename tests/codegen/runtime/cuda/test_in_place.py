"""Arguments updated in place: an array that is argument and result is not copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

CACHES = """HloModule caches
ENTRY main {
  keys = f32[16,8] parameter(0)
  values = f32[16,8] parameter(1)
  row = f32[1,8] parameter(2)
  at = s32[] parameter(3)
  zero = s32[] constant(0)
  k = f32[16,8] dynamic-update-slice(keys, row, at, zero)
  twice = f32[1,8] add(row, row)
  v = f32[16,8] dynamic-update-slice(values, twice, at, zero)
  sums = f32[16,8] multiply(k, v)
  ROOT t = (f32[16,8], f32[16,8], f32[16,8]) tuple(k, v, sums)
}
"""
OLD = CACHES.replace("multiply(k, v)", "multiply(k, keys)")


def arrays() -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    shapes = (16, 8), (16, 8), (1, 8)
    return [*(rng.standard_normal(s).astype(np.float32) for s in shapes), np.array(5, np.int32)]


def expected(keys: Any, values: Any, row: Any, at: Any, old: bool) -> list[Any]:
    k, v = keys.copy(), values.copy()
    k[at], v[at] = row[0], row[0] + row[0]
    return [k, v, k * (keys if old else v)]


@pytest.mark.parametrize("old", [False, True])
def test_caches_that_are_arguments_and_results(fake: Any, old: bool) -> None:
    exe = fake.executable(OLD if old else CACHES)
    args = arrays()
    keys, values, row, at = (exe.put(a) for a in args)
    product = exe.put(np.zeros((16, 8), np.float32))
    state = args[:2]
    for turn in range(4):  # submitted, recorded, replayed
        before = fake.count()["cuMemcpyDtoDAsync"]
        want = expected(*state, args[2], args[3], old)
        exe(keys, values, row, at, out=(keys, values, product))
        copies = fake.count()["cuMemcpyDtoDAsync"] - before
        assert copies == 0 if not old else copies >= 0, turn
        state = [keys.numpy(), values.numpy()]
        for a, b in zip(want, [*state, product.numpy()], strict=True):
            np.testing.assert_array_equal(b, a)


def test_of_two_results_in_one_array_each_goes_through_memory_of_its_own(fake: Any) -> None:
    exe = fake.executable(CACHES)
    args = arrays()
    keys, values, row, at = (exe.put(a) for a in args)
    product = exe.put(np.zeros((16, 8), np.float32))
    want = expected(*args, old=False)
    exe(keys, values, row, at, out=(values, keys, product))  # crossed
    for a, b in zip(want, (values, keys, product), strict=True):
        np.testing.assert_array_equal(b.numpy(), a)


def test_one_array_for_both_caches(fake: Any) -> None:
    exe = fake.executable(CACHES)
    args = arrays()
    keys, row, at = (exe.put(args[n]) for n in (0, 2, 3))
    others = [exe.put(np.zeros((16, 8), np.float32)) for _ in range(2)]
    want = expected(args[0], args[0], args[2], args[3], old=False)
    exe(keys, keys, row, at, out=(keys, *others))
    for a, b in zip(want, (keys, *others), strict=True):
        np.testing.assert_array_equal(b.numpy(), a)
