"""Elements beyond number 2**32 of an array: offsets that 32 bits do not hold."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw

N = 70_000  # rows of as many bytes: 4.9 GB, of which the system provides the pages that are touched
SLICE = "ROOT r = u8[2,33] slice(x), slice={[69998:70000], [69967:70000]}"
FAR = "ROOT r = u8[3,33] slice(x), slice={[0:70000:34999], [0:33]}"
ROWS = """i = s32[2,1] parameter(1)
  ROOT r = u8[2,70000] gather(x, i), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,70000}"""
BLOCK = """i = s32[] parameter(1)
  j = s32[] parameter(2)
  ROOT r = u8[3,40] dynamic-slice(x, i, j), dynamic_slice_sizes={3,40}"""


@pytest.fixture(scope="module")
def last_rows() -> np.ndarray:
    try:
        x = np.zeros((N, N), np.uint8)
    except MemoryError:
        pytest.skip(f"the system does not promise {N * N >> 20} MiB")
    x[-3:, -50:] = np.arange(150).reshape(3, 50)
    x[-2:, :50] = 7
    return x


@pytest.mark.parametrize("target", ["cpu", "cuda-sim -arch=sm_80"])
def test_elements_at_the_end_are_read(target: str, last_rows: np.ndarray) -> None:
    def found(body: str, *starts: np.ndarray) -> np.ndarray:
        text = f"ENTRY e {{ x = u8[{N},{N}] parameter(0)\n  {body} }}"
        return np.asarray(nw.build(nw.parse(text), target=target)(last_rows, *starts))

    np.testing.assert_array_equal(found(SLICE), last_rows[-2:, -33:])
    np.testing.assert_array_equal(found(FAR), last_rows[::34999, :33])
    rows = np.array([[N - 1], [N - 3]], np.int32)
    np.testing.assert_array_equal(found(ROWS, rows), last_rows[rows[:, 0]])
    starts = np.array(N - 3, np.int32), np.array(N - 40, np.int32)
    np.testing.assert_array_equal(found(BLOCK, *starts), last_rows[-3:, -40:])
