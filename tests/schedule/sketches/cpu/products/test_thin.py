"""Products of few columns: equal results, vectors along the terms, and where tiles are better."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from assembly import hottest_loop

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo.group import lower_group

WIDE = "cpu -mcpu=skylake-avx512 -threads=2"


def thin_text(rows: str, terms: int, columns: int, turned: bool, tail: str, kind: str) -> str:
    """Return ``x w`` of ``kind``, with ``w`` transposed if ``turned``, and a tail as HLO."""
    dims, across = (f"{columns},{terms}", 1) if turned else (f"{terms},{columns}", 0)
    last = rows.count(",") + 1
    how = f"lhs_contracting_dims={{{last}}}, rhs_contracting_dims={{{across}}}"
    out = f"{kind}[{rows},{columns}]"
    below = f"  b = {out} broadcast(p2), dimensions={{{last}}}\n  ROOT r = {out} {tail}\n"
    return (
        f"HloModule m\nENTRY main {{\n  p0 = {kind}[{rows},{terms}] parameter(0)\n"
        f"  p1 = {kind}[{dims}] parameter(1)\n"
        + (f"  p2 = {kind}[{columns}] parameter(2)\n" if tail else "")
        + f"  {'' if tail else 'ROOT '}d = {out} dot(p0, p1), {how}\n{below if tail else ''}}}\n"
    )


def lowered(text: str) -> Func:
    (group,) = fuse(parse(text).entry).groups
    return lower_group(group.computation, group.name)


def names(func: Func, machine: str = WIDE) -> list[str]:
    return [s.name for s in generate(func, Target.parse(machine))]


CASES = {
    "three": ("37", 130, 3, False, "", "f32"),
    "turned": ("8", 64, 5, True, "maximum(d, b)", "f32"),
    "seven": ("142", 131, 7, False, "add(d, b)", "f32"),
    "images": ("2,10", 72, 4, True, "", "f32"),
    "doubles": ("6", 33, 3, False, "", "f64"),
}


@pytest.mark.parametrize("machine", ["cpu", "cpu -mcpu=haswell"])
@pytest.mark.parametrize("name", CASES)
def test_choices_compute_the_same(name: str, machine: str, cheap_forks: None) -> None:
    """All choices, as code, on small whole numbers."""
    target = Target.parse(f"{machine} -threads=2")
    if not target.is_host:
        pytest.skip("this machine has other vectors")
    func = lowered(thin_text(*CASES[name]))
    draw = np.random.default_rng(1)
    args = [draw.integers(-9, 10, b.shape).astype(to_numpy(b.dtype)) for b in func.params[:-1]]
    (expected,) = run(func, args)
    found = [s for s in generate(func, target) if s.name == "thin@1"]
    assert found or target.vector_bits < 512
    for sketch in found:
        choices = [
            dict(zip(sketch.decisions, c, strict=True)) for c in product(*sketch.decisions.values())
        ]
        for c in (sketch.default, *random.Random(name).sample(choices, min(2, len(choices)))):
            sch = Schedule(func)
            sketch.apply(sch, c)
            got = compile_func(sch.func, target)(*args)
            np.testing.assert_array_equal(got, expected, err_msg=str(c))


@pytest.mark.parametrize("turned", [False, True])
def test_each_step_is_whole_vectors(turned: bool) -> None:
    text = stage_text(parse(thin_text("64", 256, 3, turned, "", "f32")), WIDE, "asm")
    loop = hottest_loop(text)
    assert loop is not None and (loop.fmas, loop.stack, loop.broadcasts) == (12, 0, 0), loop


def test_where_it_is_the_default() -> None:
    assert names(lowered(thin_text("64", 256, 3, False, "", "f32")))[0] == "thin@1"
    few_terms = thin_text("64", 48, 3, False, "", "f32")
    many_columns = thin_text("64", 256, 16, False, "", "f32")
    one_row = thin_text("1", 256, 3, False, "", "f32")
    for text in (few_terms, many_columns, one_row):
        assert "thin@1" not in names(lowered(text))
