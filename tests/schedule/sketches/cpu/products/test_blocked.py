"""Products in blocks of terms: one kernel, the instructions of its loop, results of all tiles."""

from __future__ import annotations

import platform
import re

import numpy as np
import pytest

from nestwright.codegen.driver.build import PreparedModule, build
from nestwright.codegen.driver.oracle import Oracle
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.arrays import Array
from nestwright.ir.hlo import freeze, parse
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

TEXT = """HloModule blocks
ENTRY main {
  x = f32[ROWS,TERMS] parameter(0)
  c = u8[TERMS,WIDE] parameter(1)
  s = f32[COUNT,WIDE] parameter(2)
  b = f32[WIDE] parameter(3)
  f = f32[TERMS,WIDE] convert(c)
  ss = f32[COUNT,SIZE,WIDE] broadcast(s), dimensions={0,2}
  sr = f32[TERMS,WIDE] reshape(ss)
  w = f32[TERMS,WIDE] multiply(f, sr)
  d = f32[ROWS,WIDE] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bs = f32[ROWS,WIDE] broadcast(b), dimensions={1}
  ROOT y = f32[ROWS,WIDE] add(d, bs)
}
"""
ALONE = re.sub(r"  (b|bs|ROOT y) = .*\n", "", TEXT).replace("  d = ", "  ROOT d = ")
HERE = "cpu -threads=2"
PLAIN = "cpu -threads=2 -mcpu=x86-64" if platform.machine() == "x86_64" else HERE
VNNI = "cpu -mcpu=sapphirerapids -threads=2"
LOOSE = " -accuracy=0.01"


def module(
    rows: int, count: int, wide: int, *, bits: int = 4, size: int = 32, text: str = TEXT
) -> HloModule:
    named = {"ROWS": rows, "COUNT": count, "WIDE": wide, "SIZE": size, "TERMS": count * size}
    made = re.sub("|".join(named), lambda m: str(named[m[0]]), text)
    rng = np.random.default_rng(0)
    held = {
        1: rng.integers(0, 1 << bits, (count * size, wide)).astype(np.uint8),
        2: rng.uniform(0.01, 0.03, (count, wide)).astype(np.float32),
    }
    if text == TEXT:
        held[3] = rng.standard_normal(wide).astype(np.float32)
    return freeze(parse(made), held)


def rows_of(m: HloModule) -> Array:
    dims = m.entry.parameters[0].array.dims
    return np.random.default_rng(1).standard_normal(dims).astype(np.float32)


def sketch_of(made: PreparedModule) -> tuple[str, Func, Sketch]:
    """Return the key and the function of the group with the product, and its sketch."""
    ((key, group),) = ((k, g) for k, g in made.groups.distinct.items() if g.kind == "dot")
    func = lower_group(group.computation, group.name)
    return key, func, next(s for s in generate(func, made.target) if s.name == "blocked@1")


SHAPES = {
    "one row": (TEXT, 1, 3, 50),
    "rows": (TEXT, 5, 2, 33),
    "alone": (ALONE, 5, 2, 33),
    "narrow alone": (ALONE, 2, 5, 2),
}
SPECS = [HERE, HERE + LOOSE, PLAIN, PLAIN + LOOSE]


@pytest.mark.parametrize(
    ("shape", "spec", "bits"),
    [(s, spec, (4, 8)[(i + j) % 2]) for i, s in enumerate(SHAPES) for j, spec in enumerate(SPECS)],
)
def test_results(shape: str, spec: str, bits: int) -> None:
    """Each shape for each machine, of codes of 4 and of 8 bits in turn."""
    text, rows, count, wide = SHAPES[shape]
    m, target = module(rows, count, wide, bits=bits, text=text), Target.parse(spec)
    made = PreparedModule(m, target)
    sketch_of(made)
    exe, x = made.build({}), rows_of(m)
    (row,) = Oracle.of(m, [x], target).judge(exe(x))
    assert row.ok and row.error < 1e-4


@pytest.mark.parametrize("size", [8, 10, 24, 64])
@pytest.mark.parametrize("spec", [HERE, HERE + LOOSE])
def test_blocks_of_any_size(size: int, spec: str) -> None:
    m, target = module(3, 3, 40, size=size), Target.parse(spec)
    exe = build(m, target)
    x = rows_of(m)
    (row,) = Oracle.of(m, [x], target).judge(exe(x))
    assert row.ok and row.error < 1e-4


@pytest.mark.parametrize("spec", [HERE, HERE + LOOSE, PLAIN])
def test_every_tile_is_right(spec: str) -> None:
    m, target = module(7, 3, 70), Target.parse(spec)
    made = PreparedModule(m, target)
    key, func, sketch = sketch_of(made)
    x = rows_of(m)
    oracle = Oracle.of(m, [x], target)
    points = [c for c in sketch.points() if sketch.valid(c)]
    for choice in points[:: max(1, len(points) // 3)]:
        sch = Schedule(func)
        sketch.apply(sch, choice)
        exe = made.build({key: sch.trace})
        (row,) = oracle.judge(exe(x))
        assert row.ok and row.error < 1e-4, choice


def test_both_codes_of_a_byte_are_multiplied_four_terms_at_once() -> None:
    m = module(1, 4, 64)
    text = stage_text(m, VNNI + LOOSE, "asm")
    loop = max(re.split(r"(?m)^(?=\.L\w+:)", text), key=lambda b: b.count("vpdpbusd"))
    products = loop.count("vpdpbusd")
    assert products and products % 2 == 0
    assert "vpmovzx" not in loop and "vcvt" not in loop.split("vpdpbusd")[1]


def test_given_codes_keep_the_sketches_of_any_product() -> None:
    named = {"ROWS": "2", "COUNT": "2", "WIDE": "16", "SIZE": "32", "TERMS": "64"}
    m = parse(re.sub("|".join(named), lambda x: named[x[0]], TEXT))
    made = PreparedModule(m, Target.parse(VNNI))
    for group in made.groups.distinct.values():
        func = lower_group(group.computation, group.name)
        assert all(s.name != "blocked@1" for s in generate(func, Target.parse(VNNI)))


@pytest.mark.parametrize("spec", [HERE, HERE + LOOSE])
def test_other_sketches_are_right(spec: str) -> None:
    m, target = module(3, 3, 20), Target.parse(spec)
    made = PreparedModule(m, target)
    key, func, own = sketch_of(made)
    x = rows_of(m)
    oracle = Oracle.of(m, [x], target)
    others = [s for s in generate(func, target) if s.name != own.name]
    assert others
    for sketch in others:
        points = list(sketch.points())
        for choice in points[:: max(1, len(points) // 4)]:
            sch = Schedule(func)
            sketch.apply(sch, choice)
            (row,) = oracle.judge(made.build({key: sch.trace})(x))
            assert row.ok and row.error < 1e-4, (sketch.name, choice)
