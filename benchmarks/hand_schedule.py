"""The schedule by hand of ``docs/tour.md`` against the default one and against NumPy.

Everything of ours runs on one thread: give NumPy one as well, and keep other work away if you may::

    OPENBLAS_NUM_THREADS=1 chrt -f 10 python benchmarks/hand_schedule.py
"""

from __future__ import annotations

import runpy

import numpy as np
from side_by_side import ROOT, medians, show_seconds

import nestwright as nw


def main() -> None:
    """Print one row per way to compute ``A @ B.T``, all on one thread."""
    n, target = 384, nw.Target.parse("cpu -threads=1")
    example = runpy.run_path(str(ROOT / "examples/hand_schedule.py"))
    func = example["product"](n)
    by_hand, by_rule = nw.build(example["by_hand"](func), target), nw.build(func, target)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in "ab")
    np.testing.assert_allclose(by_hand(a, b), by_rule(a, b), rtol=1e-3, atol=1e-3)
    times = medians(
        {
            "by hand": lambda: by_hand(a, b),
            "default": lambda: by_rule(a, b),
            "NumPy": lambda: a @ b.T,
        },
    )
    for name, s in times.items():
        print(f"{name:8} {show_seconds(s):>8} {2 * n**3 / s / 1e9:7.1f} GFLOP/s")
    print(f"by hand is {times['default'] / times['by hand']:.1f} times as fast as the default")


if __name__ == "__main__":
    main()
