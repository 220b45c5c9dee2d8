"""Transposed convolutions: plain convolutions of their phases, with the same results."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.canonical.convolution import canonical_convolution
from nestwright.ir.hlo.text import parse

TEXT = """HloModule transposed
ENTRY main {{
  x = f32[2,{x[0]},{x[1]},{i}] parameter(0)
  w = f32[{k[0]},{k[1]},{each},{o}] parameter(1)
  ROOT y = f32[2,{y[0]},{y[1]},{o}] convolution(x, w), window={{size={k[0]}x{k[1]}
    stride={s[0]}x{s[1]} pad={a[0]}_{b[0]}x{a[1]}_{b[1]} lhs_dilate={d[0]}x{d[1]}
    rhs_dilate={r[0]}x{r[1]}}}, dim_labels=b01f_01io->b01f, feature_group_count={g}
}}
"""


def convolution(rng: random.Random) -> str | None:
    """A random convolution of dilated pixels; None if it has no results."""
    d = rng.choice([(2, 2), (1, 2), (3, 1), (2, 3), (4, 4)])
    k, x = ([rng.randint(1, 5) for _ in d] for _ in range(2))
    a, b = ([rng.randint(0, 5) for _ in d] for _ in range(2))
    s, r = ([rng.choice([1, 2]) if n == 1 else 1 for n in d] for _ in range(2))
    dims = zip(x, d, a, b, k, r, s, strict=True)
    y = [((n - 1) * e + 1 + p + q - (m - 1) * t - 1) // u + 1 for n, e, p, q, m, t, u in dims]
    g, each = rng.choice([(1, 2), (2, 2), (2, 1)])
    named = {"x": x, "k": k, "y": y, "s": s, "a": a, "b": b, "d": d, "r": r, "g": g}
    return TEXT.format(i=each * g, each=each, o=3 * g, **named) if min(y) > 0 else None


def dilated(module: HloModule) -> int:
    windows = [i.attrs["window"] for i in module.entry.instructions if i.opcode == "convolution"]
    return sum(any(d.lhs_dilate > 1 for d in window) for window in windows)


@pytest.mark.parametrize("seed", range(8))
def test_results_are_the_same(seed: int) -> None:
    rng, values = random.Random(seed), np.random.default_rng(seed)
    texts = [t for t in (convolution(rng) for _ in range(20)) if t is not None]
    assert len(texts) > 4
    for text in texts:
        module = parse(text)
        args = [
            values.integers(-3, 4, p.array.dims).astype(np.float32) for p in module.entry.parameters
        ]
        changed = canonical_convolution(module)
        weights = module.entry.parameters[1].array.dims
        assert dilated(changed) == (weights[-2] == 1), "depthwise: few terms"
        np.testing.assert_array_equal(evaluate(changed, args), evaluate(module, args), text)


def test_very_many_phases_stay_one_convolution() -> None:
    sizes = {"x": (3, 3), "k": (9, 9), "y": (9, 9), "s": (1, 1), "r": (1, 1)}
    text = TEXT.format(i=2, each=2, o=3, g=1, a=(4, 4), b=(4, 4), d=(4, 5), **sizes)
    module = parse(text.replace("y = f32[2,9,9,3]", "y = f32[2,9,11,3]"))
    assert dilated(canonical_convolution(module)) == 1
