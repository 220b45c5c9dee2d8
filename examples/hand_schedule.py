"""A schedule by hand: ``C = A @ B.T`` in the DSL, tiled, packed and vectorized step by step.

``docs/tour.md`` explains the steps; ``benchmarks/hand_schedule.py`` measures what they are worth.
"""

from __future__ import annotations

import numpy as np

import nestwright as nw
from nestwright import te
from nestwright.ir.loop.nodes import Func

ROWS, VECTORS, LANES = 8, 3, 16  # 24 vectors of sums, of the 32 registers that AVX-512 has


def product(n: int) -> Func:
    """Return ``C = A @ B.T`` for matrices of n x n."""
    a = te.placeholder((n, n), "f32", "A")
    b = te.placeholder((n, n), "f32", "B")
    k = te.reduce_axis(n, "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    return te.create_func([a, b, c], name="product")


def by_hand(func: Func) -> nw.Schedule:
    """Tiles of ``ROWS`` x ``VECTORS`` vectors in registers, over panels of B packed transposed."""
    sch = nw.Schedule(func)
    out = sch.cache_write("C", 0, "register")
    i, j = sch.get_loops(out)
    i, row = sch.split(i, [None, ROWS])
    j, vector, lane = sch.split(j, [None, VECTORS, LANES])
    sch.reorder(j, i, row, vector, lane)
    sch.compute_at("C", i)

    panel = sch.cache_read("C", 2)
    sch.compute_at(panel, j)
    sch.transform_layout(panel, 0, pack=[(0, VECTORS * LANES)])
    pj, pk = sch.get_loops(panel)[-2:]
    sch.reorder(pk, pj)
    _, lanes = sch.split(pj, [None, LANES])
    sch.vectorize(lanes)

    *_, ci, cj, k = sch.get_loops("C")
    cv, cl = sch.split(cj, [VECTORS, LANES])
    sch.reorder(k, ci, cv, cl)
    start = sch.decompose_reduction("C", k)

    for block in (start, "C", out):
        rows, vectors, lanes = sch.get_loops(block)[-3:]
        sch.unroll(rows)
        sch.unroll(vectors)
        sch.vectorize(lanes)
    sch.parallel(j)
    return sch


def main() -> None:
    """Print the scheduled nest; check it on small numbers."""
    n = 384
    sch = by_hand(product(n))
    print(sch.show())
    kernel = nw.build(sch)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (n, n)).astype(np.float32) for _ in "ab")
    print("right" if np.array_equal(kernel(a, b), a @ b.T) else "WRONG")


if __name__ == "__main__":
    main()
