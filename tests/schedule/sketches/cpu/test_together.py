"""Element-wise blocks over one space share a nest: each element is read once for all results."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.schedule.sketches.cpu.nests.pointwise import RUN

ADAM = """HloModule adam
ENTRY main {{
  p = f32[{n}] parameter(0)
  g = f32[{n}] parameter(1)
  m = f32[{n}] parameter(2)
  v = f32[{n}] parameter(3)
  a = f32[] constant(0.5)
  b = f32[] constant(0.25)
  as = f32[{n}] broadcast(a), dimensions={{}}
  bs = f32[{n}] broadcast(b), dimensions={{}}
  old = f32[{n}] multiply(m, as)
  new = f32[{n}] multiply(g, bs)
  mean = f32[{n}] add(old, new)
  square = f32[{n}] multiply(g, g)
  part = f32[{n}] multiply(square, bs)
  kept = f32[{n}] multiply(v, as)
  variance = f32[{n}] add(kept, part)
  step = f32[{n}] multiply(mean, variance)
  next = f32[{n}] subtract(p, step)
  ROOT t = (f32[{n}], f32[{n}], f32[{n}]) tuple(next, mean, variance)
}}"""


@pytest.mark.parametrize("n", ["4096", "3,1000", "5,7", "40,3,33"])
def test_results_of_one_space_share_a_nest(n: str) -> None:
    module = parse(ADAM.format(n=n))
    text = nw.lower(module).as_text("scheduled")
    assert text.count("@func") == 1
    assert text.count("with block") == 3
    top = [line for line in text.splitlines() if line.startswith("    for ")]
    assert len(top) == 1
    dims = tuple(map(int, n.split(",")))
    rng = np.random.default_rng(0)
    arguments = [rng.integers(-4, 5, dims).astype(np.float32) for _ in range(4)]
    found = nw.build(module, target="cpu")(*arguments)
    for one, wanted in zip(found, evaluate(module, arguments), strict=True):
        np.testing.assert_array_equal(one, wanted)


def test_many_results_are_several_nests() -> None:
    """A nest that a block joins is checked whole: its time grows by the square of the blocks."""
    names = [f"s{k}" for k in range(RUN + 2)]
    rows = [
        f"  {s} = f32[1,8] slice(x), slice={{[{7 * k % 37}:{7 * k % 37 + 1}], [0:8]}}"
        for k, s in enumerate(names)
    ]
    last = f"  ROOT y = f32[{RUN + 2},8] concatenate({', '.join(names)}), dimensions={{0}}"
    head = "HloModule rows\nENTRY main {\n  x = f32[37,8] parameter(0)"
    module = parse("\n".join([head, *rows, last, "}"]))
    text = nw.lower(module).as_text("scheduled")
    assert [line.startswith("    for ") for line in text.splitlines()].count(True) == 2
    x = np.arange(37 * 8, dtype=np.float32).reshape(37, 8)
    np.testing.assert_array_equal(nw.build(module, target="cpu")(x), evaluate(module, [x]))


TURNED = """HloModule turned
ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] exponential(x)
  t = f32[64,64] transpose(y), dimensions={1,0}
  z = f32[64,64] add(y, t)
  ROOT r = (f32[64,64], f32[64,64]) tuple(y, z)
}"""


def test_a_block_that_needs_other_elements_has_a_nest_of_its_own() -> None:
    module = parse(TURNED)
    x = np.random.default_rng(0).uniform(-1, 1, (64, 64)).astype(np.float32)
    y, z = nw.build(module, target="cpu")(x)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(z, np.exp(x) + np.exp(x).T, rtol=1e-6)
