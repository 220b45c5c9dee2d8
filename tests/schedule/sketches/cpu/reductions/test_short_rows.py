"""Short rows: lanes are rows, every choice computes the same, and where the sketch declines."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import PreparedModule, build
from nestwright.codegen.driver.stages import stage_text
from nestwright.codegen.plan.groups import fuse_module
from nestwright.ir.arrays import Array
from nestwright.ir.comparison import compare
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

Shape = tuple[int, ...]

COMBINE = """
add { a = T[] parameter(0)  b = T[] parameter(1)  ROOT c = T[] add(a, b) }
max { a = T[] parameter(0)  b = T[] parameter(1)  ROOT c = T[] maximum(a, b) }
first { a = T[] parameter(0)  i = s32[] parameter(1)  b = T[] parameter(2)  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE  v = T[] select(g, a, b)  k = s32[] select(g, i, j)
  ROOT t = (T[], s32[]) tuple(v, k) }
"""
BODIES = {
    "softmax": """
      m = T[ROWS] reduce(x, low), dimensions={LAST}, to_apply=max
      mb = T[ALL] broadcast(m), dimensions={LEAD}
      d = T[ALL] subtract(x, mb)
      e = T[ALL] exponential(d)
      s = T[ROWS] reduce(e, zero), dimensions={LAST}, to_apply=add
      sb = T[ALL] broadcast(s), dimensions={LEAD}
      ROOT r = T[ALL] divide(e, sb)""",
    "length": """
      q = T[ALL] multiply(x, x)
      s = T[ROWS] reduce(q, zero), dimensions={LAST}, to_apply=add
      n = T[ROWS] sqrt(s)
      nb = T[ALL] broadcast(n), dimensions={LEAD}
      y = T[ALL] divide(x, nb)
      ROOT r = (T[ROWS], T[ALL]) tuple(n, y)""",
    "maximum": "ROOT m = T[ROWS] reduce(x, low), dimensions={LAST}, to_apply=max",
    "first": """
      i = s32[ALL] iota(), iota_dimension=LAST
      none = s32[] constant(0)
      ROOT t = (T[ROWS], s32[ROWS]) reduce(x, i, low, none), dimensions={LAST}, to_apply=first""",
}
CASES: tuple[tuple[Shape, str], ...] = (
    ((1003, 3), "cpu -threads=2"),
    ((3, 40, 5), "cpu -threads=2"),
    ((35, 8), "cpu -threads=2"),
    ((16, 2), "cpu -threads=2"),
    ((33, 7), "cpu -mcpu=haswell"),
)


def text(body: str, shape: Shape, dtype: str = "f32") -> str:
    low = "-128" if dtype == "s8" else "-inf"
    words = {
        "ALL": ",".join(map(str, shape)),
        "ROWS": ",".join(map(str, shape[:-1])),
        "LEAD": ",".join(map(str, range(len(shape) - 1))),
        "LAST": str(len(shape) - 1),
        "T": dtype,
    }
    main = f"""ENTRY main {{
      x = T[ALL] parameter(0)
      zero = T[] constant(0)
      low = T[] constant({low})
      {BODIES[body]} }}"""
    kept = COMBINE if dtype != "pred" else ""
    return re.sub(
        r"\b(ALL|ROWS|LEAD|LAST|T)\b", lambda m: words[m[0]], f"HloModule m\n{kept}\n{main}"
    )


def argument(shape: Shape, dtype: str = "f32") -> Array:
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, shape) if dtype == "s8" else 3 * rng.standard_normal(shape)
    return x.astype(to_numpy(BY_NAME[dtype]))


def function(body: str, shape: Shape, dtype: str = "f32") -> Func:
    (group,) = fuse_module(optimize(parse(text(body, shape, dtype)))).distinct.values()
    return lower_group(group.computation, "rows")


@pytest.mark.parametrize(
    ("body", "shape", "spec"),
    [
        (body, *CASES[(n + step) % len(CASES)])
        for n, body in enumerate(BODIES)
        for step in ((0, 2, 4) if body == "softmax" else (0, 3))
    ],
)
def test_every_choice_computes_the_same(body: str, shape: Shape, spec: str) -> None:
    module, target = parse(text(body, shape)), Target.parse(spec)
    if not target.is_host or target.lanes(BY_NAME["f32"]) <= shape[-1]:
        pytest.skip(f"this processor has other vectors than {spec} asks for")
    made = PreparedModule(module, target)
    x = argument(shape)
    if body in ("maximum", "first"):
        x.reshape(-1)[::29] = np.nan if body == "maximum" else x.max()
    expected = evaluate(module, [x])
    (key, group), *others = made.groups.distinct.items()
    sketches = generate(lower_group(group.computation, group.name), made.target)
    assert sketches[0].name == "short_rows@1" and not others
    for choices in sketches[0].points():
        schedule = Schedule(lower_group(group.computation, group.name))
        sketches[0].apply(schedule, choices)
        got = made.build({key: schedule.trace})(x)
        for n, (a, b) in enumerate(zip(_several(got), _several(expected), strict=True)):
            assert compare(n, a, b).ok, choices


def _several(found: Any) -> tuple[Array, ...]:
    return found if isinstance(found, tuple) else (found,)


FILTERS = {
    "blur": ("2,9,40,1", "5,5,1,1", "2,9,40,1", "size=5x5 pad=2_2x2_2", "short_rows@1"),
    "stride": (
        "1,9,67,1",
        "3,3,1,1",
        "1,5,33,1",
        "size=3x3 stride=2x2 pad=1_1x0_0",
        "short_rows@1",
    ),
    "many": ("1,9,20,48", "3,3,48,1", "1,9,20,1", "size=3x3 pad=1_1x1_1", "row_tiles@1"),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_with_one_result_feature(name: str) -> None:
    """Lanes are pixels, or terms; the padding is made before."""
    x, w, out, window, sketch = FILTERS[name]
    module = parse(f"""HloModule m
    ENTRY main {{
      x = f32[{x}] parameter(0)
      w = f32[{w}] parameter(1)
      ROOT c = f32[{out}] convolution(x, w), window={{{window}}}, dim_labels=b01f_01io->b01f }}""")
    made = PreparedModule(module, "cpu -threads=2")
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(p.array.dims).astype(np.float32) for p in module.entry.parameters]
    expected = evaluate(module, args)
    ((key, group),) = made.groups.distinct.items()
    func = lower_group(group.computation, group.name)
    first = generate(func, made.target)[0]
    assert first.name == sketch
    for choices in list(first.points())[::3]:
        schedule = Schedule(func)
        first.apply(schedule, choices)
        got = made.build({key: schedule.trace})(*args)
        assert compare(0, got, expected).ok, choices


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16", "s8"])
@pytest.mark.parametrize("body", ["maximum", "length"])
def test_other_types(body: str, dtype: str) -> None:
    if dtype == "s8" and body == "length":
        return
    module = parse(text(body, (201, 5), dtype))
    x = argument((201, 5), dtype)
    got, expected = build(module, "cpu -threads=2")(x), evaluate(module, [x])
    for n, (a, b) in enumerate(zip(_several(got), _several(expected), strict=True)):
        assert compare(n, a, b).ok


@pytest.mark.parametrize("width", [2, 3, 4, 5, 8])
def test_nothing_is_gathered_or_scattered(width: int) -> None:
    module = parse(text("softmax", (4096, width)))
    asm = stage_text(module, "cpu -mcpu=skylake-avx512", "asm")
    assert not re.search(r"\sv(gather|scatter)", asm)


@pytest.mark.parametrize("shape", [(4096, 16), (7, 3), (5, 3), (4096, 1)])
def test_long_rows_and_few_are_for_others(shape: Shape) -> None:
    names = [s.name for s in generate(function("length", shape), Target.parse("cpu"))]
    assert "short_rows@1" not in names


@pytest.mark.parametrize("spec", ["cpu -mcpu=x86-64-v2 -threads=1", "cpu -threads=2"])
def test_stages_that_turn_their_rows_have_none_in_common(spec: str) -> None:
    """Both stages have 8 x 6 x 7 x 6 rows, but the second reads those of the first transposed."""
    module = parse(
        """HloModule turned
ENTRY main {
  x = s32[8,18,7,12] parameter(0)
  w = s32[3,1,1] parameter(1)
  y = s32[8,18,7,12,1] reshape(x)
  v = s32[3,1,1,1,1] reshape(w)
  c = s32[8,6,7,6,1] convolution(y, v), dim_labels=b012f_012io->b012f,
    window={size=3x1x1 stride=3x1x2 pad=0_0x0_0x0_-1}
  ROOT t = s32[8,6,7,6,1] transpose(c), dimensions={0,3,2,1,4}
}"""
    )
    args = [
        np.arange(n, dtype=np.int32).reshape(s)
        for n, s in ((12096, (8, 18, 7, 12)), (3, (3, 1, 1)))
    ]
    got, expected = build(module, spec)(*args), evaluate(module, args)
    np.testing.assert_array_equal(got, expected)
