"""Nanoseconds that a call costs: an addition of eight numbers, and NumPy's for comparison.

::

    chrt -f 10 python benchmarks/dispatch.py
"""

from __future__ import annotations

import numpy as np
from side_by_side import medians

import nestwright as nw

TINY_ADD = """
HloModule tiny_add
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  ROOT z = f32[8] add(x, y)
}
"""


def main() -> None:
    """Print one row per way to add."""
    exe = nw.build(nw.parse(TINY_ADD))
    x, y = np.arange(8, dtype=np.float32), np.ones(8, dtype=np.float32)
    assert np.array_equal(exe(x, y), x + y)
    by_shape = nw.Specialized(lambda *args: nw.parse(TINY_ADD))
    assert np.array_equal(by_shape(x, y), x + y)
    times = medians(
        {
            "nestwright": lambda: exe(x, y),
            "by shape": lambda: by_shape(x, y),
            "NumPy": lambda: x + y,
            "nothing": tuple,
        }
    )
    for name, s in times.items():
        print(f"{name:12}{s * 1e9:6.0f} ns")


if __name__ == "__main__":
    main()
