"""The digest of sums of a file's constants: any byte that changes changes it."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.plan.saved.manifest import ROW, sums

PAGE = 8 * ROW


@pytest.mark.parametrize("size", [1, 7, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 9])
def test_every_byte_counts(size: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    known = sums(data)
    for place in {0, size // 2, size - 1}:
        for bit in (1, 128):
            data[place] ^= bit
            assert sums(data) != known
            data[place] ^= bit
    assert sums(data) == known and sums(data[:-1]) != known
