"""Dots of transposed operands: one kernel that gathers nothing, and right elements."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nestwright.codegen.driver.build import PreparedModule, build
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.arrays import Array
from nestwright.ir.comparison import compare
from nestwright.ir.dtypes import BY_NAME, to_numpy
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.text import parse
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

Shape = tuple[int, int, int, int]
"""Batch (0 for none), rows, columns, terms."""

FORMS = ("NN", "NT", "TN", "TT")
AVX2 = "cpu -mcpu=haswell -threads=2"
AVX512 = "cpu -mcpu=skylake-avx512 -threads=2"
SHAPES: tuple[Shape, ...] = ((3, 17, 33, 18), (0, 47, 50, 100))
EDGES: tuple[Shape, ...] = (
    (0, 16, 16, 16),
    (0, 130, 96, 64),
    (1, 33, 18, 40),
    (2, 17, 129, 35),
    (3, 40, 24, 20),
    (0, 1, 40, 33),
    (0, 40, 1, 33),
    (0, 33, 40, 1),
    (0, 15, 40, 33),
    (0, 0, 40, 33),
    (0, 33, 40, 0),
)


OWN = ("f32", "bf16", "s8")


def text(form: str, shape: Shape, dtype: str, then: str = "") -> str:
    batch, m, n, k = shape
    lead = f"{batch}," if batch else ""
    at = bool(batch)
    x = f"{lead}{k},{m}" if form[0] == "T" else f"{lead}{m},{k}"
    y = f"{lead}{n},{k}" if form[1] == "T" else f"{lead}{k},{n}"
    batches = "lhs_batch_dims={0}, rhs_batch_dims={0}, " if batch else ""
    kind = f"{dtype}[{lead}{m},{n}]"
    result = then.replace("KIND", kind) if then else f"ROOT r = {kind} negate(d)"
    return f"""HloModule forms
ENTRY e {{
  x = {dtype}[{x}] parameter(0)
  y = {dtype}[{y}] parameter(1)
  d = {kind} dot(x, y), {batches}lhs_contracting_dims={{{at + (form[0] == "N")}}},
      rhs_contracting_dims={{{at + (form[1] == "T")}}}
  {result}
}}
"""


def operands(form: str, shape: Shape, dtype: str) -> tuple[Array, Array]:
    batch, m, n, k = shape
    rng, lead = np.random.default_rng(0), (batch,) if batch else ()
    sizes = (k, m) if form[0] == "T" else (m, k), (n, k) if form[1] == "T" else (k, n)
    kind = to_numpy(BY_NAME[dtype])
    x, y = (rng.integers(-9, 10, (*lead, *s)).astype(kind) for s in sizes)
    return x, y


@pytest.mark.parametrize(
    ("target", "dtype", "form"),
    [
        *(("cpu -threads=2", t, form) for t in OWN for form in FORMS),
        *(("cpu -threads=2", t, form) for t in ("f64", "f16", "s32") for form in ("NT", "TN")),
        *((AVX2, t, form) for t in OWN for form in ("NN", "TT")),
        *((AVX512, t, form) for t in OWN for form in ("NT", "TN")),
    ],
)
def test_every_form_is_right(form: str, target: str, dtype: str) -> None:
    """Types that are multiplied in their own way in batches, too, and for other machines."""
    own = target == "cpu -threads=2" and dtype in OWN
    batches = own and (OWN.index(dtype) + FORMS.index(form)) % 2 == 0
    for shape in SHAPES if batches else SHAPES[1:]:
        module = parse(text(form, shape, dtype))
        x, y = operands(form, shape, dtype)
        assert compare(0, build(module, target)(x, y), evaluate(module, [x, y])).ok, shape


@pytest.mark.parametrize("form", FORMS)
def test_extents_of_no_whole_tile(form: str) -> None:
    """Each of two forms, one of them with one operand transposed."""
    for shape in EDGES[FORMS.index(form) // 2 :: 2]:
        module = parse(text(form, shape, "f32"))
        x, y = operands(form, shape, "f32")
        assert compare(0, build(module, "cpu -threads=2")(x, y), evaluate(module, [x, y])).ok, shape


EPILOGUES = {
    "transpose": "ROOT r = f32[50,47] transpose(d), dimensions={1,0}",
    "function": "ROOT r = KIND tanh(d)",
}


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("form", FORMS)
def test_work_on_the_result_stays_in_the_kernel(form: str, epilogue: str) -> None:
    shape = (0, 47, 50, 100)
    module = parse(text(form, shape, "f32", EPILOGUES[epilogue]))
    x, y = operands(form, shape, "f32")
    assert len(PreparedModule(module, "cpu -threads=2").groups.distinct) == 1
    assert compare(0, build(module, "cpu -threads=2")(x, y), evaluate(module, [x, y])).ok


@pytest.mark.parametrize("form", ["NN", "NT", "TN"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_one_kernel_without_gathers(form: str, dtype: str) -> None:
    asm = stage_text(parse(text(form, (0, 48, 52, 100), dtype)), AVX512, "asm")
    assert len(re.findall(r"(?m)^# \w+  ", asm)) == 1  # headings, of groups
    assert not re.search(r"\svp?(gather|scatter)", asm)


@pytest.mark.parametrize("form", ["NT", "TN", "TT"])
def test_every_choice_computes_the_same(form: str) -> None:
    shape = (2, 21, 35, 37)
    module = parse(text(form, shape, "f32"))
    made = PreparedModule(module, "cpu -threads=2")
    x, y = operands(form, shape, "f32")
    expected = evaluate(module, [x, y])
    ((key, group),) = made.groups.distinct.items()
    func = lower_group(group.computation, group.name)
    sketch = next(s for s in generate(func, made.target) if s.name == "tiling@2")
    points = list(sketch.points())
    for choices in points[:: max(1, len(points) // 5)]:
        schedule = Schedule(func)
        sketch.apply(schedule, choices)
        got = made.build({key: schedule.trace})(x, y)
        np.testing.assert_array_equal(got, expected, str(choices))
