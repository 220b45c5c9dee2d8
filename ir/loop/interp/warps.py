"""Matrix operations that the 32 threads of a warp do together, on arrays with a row for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import f32, to_numpy
from ..build import as_int
from ..fragments import Matrix, ldmatrix_source
from ..intrinsics import TABLE, WARP, multiply, tf32
from ..nodes import Intrinsic
from .operands import BoxCompiler, BoxThread
from .races import UndefinedError

Action: TypeAlias = Callable[[Sequence[BoxThread]], None]
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


def warp_action(c: BoxCompiler, s: Intrinsic, text: str) -> Action | None:
    """Return what a whole warp does of a matrix operation; None for others."""
    if s.name.startswith("ldmatrix"):
        act = _load(c, s, text)
    elif s.name.startswith("stmatrix"):
        act = _store(c, s, text)
    elif TABLE[s.name].matrix is not None:
        act = _multiply(c, s, text)
    else:
        return None

    def run(threads: Sequence[BoxThread]) -> None:
        if len(threads) != WARP:
            why = f"the last one has {len(threads)} threads"
            raise UndefinedError("a matrix operation needs whole warps", why, text)
        act(threads)

    return run


def _load(c: BoxCompiler, s: Intrinsic, text: str) -> Action:
    """A row is read for other threads, too: a neighbor represents them."""
    words, turned = as_int(s.writes[0].ranges[-1].extent) or 0, s.name.endswith(".trans")
    read, write = c.reader(s.reads[0], text), c.writer(s.writes[0])

    def run(threads: Sequence[BoxThread]) -> None:
        rows = []
        for n, t in enumerate(threads[: 8 * words]):
            rows.append(c.as_thread(t, read, t.env).tobytes())
            if c.shadow is not None:
                c.as_thread(threads[n - 1], read, t.env)
        for t, values in zip(threads, load_matrices(rows, words, turned), strict=True):
            write(t, values)

    return run


def _store(c: BoxCompiler, s: Intrinsic, text: str) -> Action:
    """Each row is written for the thread that points to it."""
    turned, kind = s.name.endswith(".trans"), to_numpy(s.writes[0].buffer.dtype)
    (to,), read = s.writes, c.reader(s.reads[0], text)
    box, write, shadow = c.box(to), c.writer(to), c.shadow

    def run(threads: Sequence[BoxThread]) -> None:
        words = np.stack([c.as_thread(t, read, t.env) for t in threads])
        for t, values in zip(threads, store_matrices(words, turned).view(kind), strict=False):
            write(t, values)
            if shadow is not None:
                shadow.thread = t.number
                shadow.write_all(to.buffer, box(t.env), text)

    return run


def _multiply(c: BoxCompiler, s: Intrinsic, text: str) -> Action:
    matrix = TABLE[s.name].matrix
    assert matrix is not None
    reads, write = [c.reader(r, text) for r in s.reads], c.writer(s.writes[0])

    def run(threads: Sequence[BoxThread]) -> None:
        held = [np.stack([c.as_thread(t, read, t.env) for t in threads]) for read in reads]
        for t, values in zip(threads, multiply_fragments(matrix, *held), strict=True):
            write(t, values)

    return run
