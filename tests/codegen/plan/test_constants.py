"""Constants of an executable: packed where they stay, equal ones once, any order of axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from nestwright.codegen.plan import constants
from nestwright.codegen.plan.constants import Constants
from nestwright.ir.arrays import Array, Bytes, row_major


@dataclass(frozen=True)
class Doubled:
    """A packer that repeats every byte."""

    bytes: int

    def fill(self, literal: Array, into: Bytes) -> None:
        into[:] = np.repeat(row_major(literal).reshape(-1).view(np.uint8), 2)


@pytest.mark.parametrize("threads", [1, 3])
def test_parts_are_where_their_slices_say(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(constants, "HUGE", 1)
    pool, rng = Constants(), np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in [(3,), (5, 7), (), (0, 4)]]
    plain = [pool.add(a) for a in arrays]
    packed = [pool.add(a, Doubled(2 * a.nbytes)) for a in arrays]
    memory = pool.memory(threads)
    assert memory.size == pool.size
    for a, s in zip(arrays, plain, strict=True):
        assert memory[s.offset : s.offset + s.bytes].tobytes() == a.tobytes()
    for a, s in zip(arrays, packed, strict=True):
        assert bytes(memory[s.offset : s.offset + s.bytes][::2]) == a.tobytes()


def test_equal_arrays_are_stored_once_and_those_of_one_sample_are_compared() -> None:
    pool = Constants()
    a = np.arange(1000, dtype=np.float32)
    b = a.copy()
    b[1] = -1  # between the elements of the sample
    assert pool.add(a) == pool.add(a.copy()) != pool.add(b)
    nan = np.array([np.nan, -0.0], np.float32)
    assert pool.add(nan) == pool.add(nan.copy()) != pool.add(np.array([np.nan, 0.0], np.float32))
    packer = Doubled(2 * a.nbytes)
    assert pool.add(a, packer) == pool.add(a.copy(), packer) != pool.add(a)


@pytest.mark.parametrize("shape", [(300, 130), (1, 5), (3, 3, 140, 129), (2, 0, 3), (129,)])
def test_row_major_copies_any_order_of_axes(shape: tuple[int, ...]) -> None:
    whole = np.arange(np.prod(shape, dtype=int), dtype=np.int16).reshape(shape)
    for order in [tuple(range(len(shape)))[::-1], (*range(1, len(shape)), 0)]:
        view = whole.transpose(order)
        made = row_major(view)
        assert made.flags.c_contiguous
        np.testing.assert_array_equal(made, view)
    np.testing.assert_array_equal(row_major(whole[::-1]), whole[::-1])
    assert row_major(whole) is whole
