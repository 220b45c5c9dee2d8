"""Products of narrow numbers in tile registers: their code, and results where there are such."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nestwright.codegen.driver.build import PreparedModule, build
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.arrays import Array
from nestwright.ir.comparison import compare
from nestwright.ir.dtypes import bf16, to_numpy
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

RAPIDS = "cpu -mcpu=sapphirerapids -threads=2"
NUMPY = {"u8": np.uint8, "s8": np.int8, "bf16": to_numpy(bf16)}
KINDS = {"u8": "s8", "s8": "s8", "bf16": "bf16"}
"""The weights' type by the rows' type."""
INSTRUCTION = {"u8": "tdpbusd", "s8": "tdpbusd", "bf16": "tdpbf16ps"}
"""A graph pass makes rows without a sign of signed ones, for the lanes of other products."""
FORM = """HloModule product
ENTRY main {{
  x = {a}[{m},{k}] parameter(0)
  w = {b}[{k},{n}] parameter(1)
  d = {c}[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = f32[{m},{n}] convert(d)
}}
"""


def text(kind: str, m: int, k: int, n: int) -> str:
    c = "f32" if kind == "bf16" else "s32"
    made = FORM.format(a=kind, b=KINDS[kind], c=c, m=m, k=k, n=n)
    return (
        made.replace("  d =", "  ROOT d =").partition("  ROOT r")[0] + "}\n"
        if c[0] == "f"
        else made
    )


def operands(kind: str, m: int, k: int, n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    if kind == "bf16":
        return x.astype(NUMPY[kind]), w.astype(NUMPY[kind])
    x, w = np.round(x * 60) + (128 if kind == "u8" else 0), np.round(w * 60)
    x, w = np.clip(x, *((0, 255) if kind == "u8" else (-128, 127))), np.clip(w, -128, 127)
    x[0], w[:, 0] = np.abs(x).max(), -128  # the largest products
    return np.clip(x, None, 127 if kind == "s8" else 255).astype(NUMPY[kind]), w.astype(np.int8)


def sketch_of(made: PreparedModule) -> tuple[str, Func, Sketch]:
    """Return the key of the group with the product, its loops and its sketch."""
    for key, group in made.groups.distinct.items():
        func = lower_group(group.computation, group.name)
        for sketch in generate(func, made.target):
            if sketch.name == "tiles@1":
                return key, func, sketch
    raise AssertionError("no group is multiplied in tile registers")


def hottest(asm: str, instruction: str) -> list[str]:
    """Return the loop body with most of an instruction, to the last one."""
    bodies = re.split(r"^\.?LBB\w+:", asm, flags=re.M)
    hot = max(bodies, key=lambda b: b.count(instruction))
    return hot[: hot.rindex(instruction)].splitlines()


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("frozen", [True, False])
def test_the_default_is_whole_instructions(kind: str, frozen: bool) -> None:
    shape = (64, 256, 96)
    w = operands(kind, *shape)[1]
    module = parse(text(kind, *shape))
    made = PreparedModule(module, RAPIDS, {1: w} if frozen else None)
    _, func, sketch = sketch_of(made)
    assert generate(func, made.target)[0].name == "tiles@1"
    asm = stage_text(module, RAPIDS, "asm", constants={1: w} if frozen else None)
    name = INSTRUCTION[kind]
    c = sketch.default
    across = -(-c["rows"] // 16) * c["vectors"]
    body = hottest(asm, name)
    assert len(re.findall(rf"\s{name}\s", "\n".join(body))) + 1 == across
    assert not [line for line in body if "(%rsp" in line and "ldtilecfg" not in line]
    assert not re.search(r"\s(vpdp\w+|vdpbf16ps|vpmaddwd)\s", asm)
    assert "tilerelease" in asm


def test_rows_of_bytes_and_columns_of_other_ones() -> None:
    """Rows may be signed or not, and so may columns."""
    for a, b, name in (("s8", "u8", "tdpbsud"), ("u8", "u8", "tdpbuud")):
        module = text("u8", 64, 128, 64).replace("w = s8", f"w = {b}").replace("x = u8", f"x = {a}")
        asm = stage_text(parse(module), RAPIDS, "asm")
        assert name in asm


def test_what_fits_no_instruction_is_for_lanes_or_tiled() -> None:
    for spec, kind, terms, given in (
        (RAPIDS, "u8", 64, True),
        (RAPIDS, "u8", 62, False),
        (RAPIDS, "bf16", 63, False),
        ("cpu -mcpu=icelake-server", "u8", 64, False),
        (f"{RAPIDS} -mattr=-amx-int8", "u8", 64, False),
        (f"{RAPIDS} -mattr=-amx-bf16", "bf16", 64, False),
    ):
        module = parse(text(kind, 32, terms, 48))
        made = PreparedModule(module, spec, {1: operands(kind, 32, terms, 48)[1]})
        (group,) = made.groups.distinct.values()
        names = [s.name for s in generate(lower_group(group.computation, "f"), made.target)]
        assert ("tiles@1" in names) == given, (spec, kind, terms)


HERE = Target.parse("cpu").features
NEEDED = {"u8": "amx-int8", "s8": "amx-int8", "bf16": "amx-bf16"}


def require_tiles(kind: str) -> None:
    if not {"amx-tile", NEEDED[kind]} <= HERE:
        pytest.skip(f"this processor, or its system, has no {NEEDED[kind]}")


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize(
    ("shape", "threads"), [((33, 100, 50), 1), ((64, 128, 96), 2), ((17, 52, 131), 2)]
)
def test_results_on_this_machine(kind: str, threads: int, shape: tuple[int, int, int]) -> None:
    require_tiles(kind)
    x, w = operands(kind, *shape)
    module = parse(text(kind, *shape))
    wanted = evaluate(module, [x, w])
    for constants, given in (({1: w}, (x,)), (None, (x, w))):
        exe = build(module, f"cpu -threads={threads}", constants=constants)
        assert INSTRUCTION[kind] in exe.as_text("asm")
        found = exe(*given)
        if kind == "bf16":
            assert compare(0, found, wanted).ok
        else:
            assert np.array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["s8", "bf16"])
def test_every_choice_computes_the_same(kind: str) -> None:
    require_tiles(kind)
    shape = 50, 72, 70
    x, w = operands(kind, *shape)
    module = parse(text(kind, *shape))
    made = PreparedModule(module, "cpu -threads=2", {1: w})
    key, func, sketch = sketch_of(made)
    points = list(sketch.points())
    taken = points[:: max(1, len(points) // 16)]
    assert {c["chunks"] for c in taken} > {1} and {c["order"] for c in taken} == {"column", "row"}
    wanted = evaluate(module, [x, w])
    for choices in taken:
        schedule = Schedule(func)
        sketch.apply(schedule, choices)
        found = made.build({key: schedule.trace})(x)
        same = compare(0, found, wanted).ok if kind == "bf16" else np.array_equal(found, wanted)
        assert same, choices
