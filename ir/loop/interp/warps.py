"""Matrix operations that the 32 threads of a warp do together, on arrays with a row for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...dtypes import f32, to_numpy
from ..fragments import Matrix, ldmatrix_source
from ..intrinsics import WARP, multiply, tf32

Array: TypeAlias = np.ndarray[Any, Any]
_LANES = np.arange(WARP)[:, None]


def load_matrices(rows: Sequence[bytes], words: int, transposed: bool) -> Array:
    """``ldmatrix``: u32 [32, words] from the 16-byte rows that the first lanes point to."""
    halves = np.frombuffer(b"".join(rows), np.uint16).reshape(-1, 8)
    element = np.arange(2 * words)[None]
    lane, place = ldmatrix_source(_LANES, element // 2, element % 2, transposed)
    found: Array = np.ascontiguousarray(halves[lane, place])
    return found.view(np.uint32)


def store_matrices(words: Array, transposed: bool) -> Array:
    """``stmatrix``: u16 [8 words, 8], the rows that the first lanes point to, from the words."""
    halves = np.ascontiguousarray(words).view(np.uint16)
    element = np.arange(halves.shape[1])[None]
    place = ldmatrix_source(_LANES, element // 2, element % 2, transposed)
    rows = np.zeros((4 * halves.shape[1], 8), np.uint16)
    rows[place] = halves
    return rows


def multiply_fragments(x: Matrix, c: Array, a: Array, b: Array) -> Array:
    """``mma``: the threads' fragments of c after it; a and b are u32 words."""
    whole_a = np.zeros((x.m, x.k), to_numpy(x.types[0]))
    whole_b = np.zeros((x.k, x.n), to_numpy(x.types[1]))
    whole_c = np.zeros((x.m, x.n), to_numpy(x.sums))
    for whole, words, place in ((whole_a, a, x.a), (whole_b, b, x.b), (whole_c, c, x.c)):
        held = np.ascontiguousarray(words).view(whole.dtype)
        whole[place(_LANES, np.arange(held.shape[1])[None])] = held
    if x.operands == f32:
        whole_a, whole_b = tf32(whole_a), tf32(whole_b)
    total = multiply(whole_c, whole_a, whole_b, 0, 1)
    return np.asarray(total[x.c(_LANES, np.arange(c.shape[1])[None])])
