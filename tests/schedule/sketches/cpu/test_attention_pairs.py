"""Attention of bf16 by instructions that add up several terms: which, and with any choices."""

from __future__ import annotations

import random
import re
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.driver.stages import stage_text
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.schedule.space.space import Sketch
from nestwright.te.from_hlo import lower_group

from .test_attention import TEXT, Array, draws

NAME, TILES = "attention_pairs@1", "attention_tiles@1"
ZEN, XEON = "cpu -mcpu=znver4 -threads=2", "cpu -mcpu=emeraldrapids -threads=2"
STORED = "ROOT r = bf16[{h},{s},{w}] convert(o)"
WIDE = "ROOT r = f32[{s},{h},{w}] transpose(o), dimensions={{1,0,2}}"


def module(h: int, s: int, t: int, d: int, w: int, result: str = STORED) -> str:
    sizes = {"h": h, "s": s, "t": t, "d": d, "w": w}
    text = TEXT.format(result=result.format(**sizes), **sizes)
    for name in "qkv":
        text = text.replace(f" {name} = f32", f" {name} = bf16")
    text = text.replace("dot(p, v)", "dot(narrow, v)")
    return text.replace(" o = f32", f" narrow = bf16[{h},{s},{t}] convert(p)\n  o = f32")


@cache
def attention(h: int, s: int, t: int, d: int, w: int, result: str = STORED) -> Func:
    fusion = fuse(optimize(parse(module(h, s, t, d, w, result))).entry, {"attention"}, True)
    (group,) = fusion.groups
    assert group.kind == "attention"
    return lower_group(group.computation, "attention")


def arguments(func: Func) -> list[Array]:
    """Random inputs; some rows of the bias begin with -inf."""
    rng = np.random.default_rng(3)
    types = {"bf16": ml_dtypes.bfloat16, "f32": np.float32}
    args = [rng.standard_normal(p.shape).astype(types[str(p.dtype)]) for p in func.params[:-1]]
    bias = next(a for a in args if a.dtype == np.float32)
    bias[1, : bias.shape[1] * 3 // 4] = -np.inf
    return args


def pairs(func: Func, spec: str = ZEN, name: str = NAME) -> Sketch | None:
    found = {s.name: s for s in generate(func, Target.parse(spec))}
    return found.get(name)


def assert_near(found: Array, expected: Array) -> None:
    """Exponentials and results are rounded to bf16."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    assert np.abs(a - b).max() < 3e-2 * np.sqrt(np.mean(np.square(b)))
    assert np.sqrt(np.mean(np.square(a - b))) < 4e-3 * np.sqrt(np.mean(np.square(b)))


@pytest.mark.parametrize(
    ("shape", "result", "spec", "offered"),
    [
        ((2, 9, 33, 6, 17), STORED, ZEN, True),
        ((2, 9, 33, 6, 17), STORED, "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1", True),
        ((2, 9, 33, 6, 17), STORED, "cpu -mcpu=skylake-avx512", False),
        ((2, 9, 33, 5, 17), STORED, ZEN, False),
        ((2, 9, 15, 6, 17), STORED, ZEN, False),
        ((2, 4, 33, 6, 17), STORED, ZEN, False),
        ((2, 9, 33, 6, 17), WIDE, ZEN, False),
        ((2, 9, 33, 6, 17), WIDE, f"{ZEN} -accuracy=0.01", True),
    ],
    ids=["x86", "aarch64", "none", "odd", "short", "few", "wide", "loose"],
)
def test_where_it_is_offered(
    shape: tuple[int, int, int, int, int], result: str, spec: str, offered: bool
) -> None:
    """Not for odd terms of scores, short or few rows, or results wider than the values, unless
    their error is allowed.
    """
    func = attention(*shape, result)
    assert (pairs(func, spec) is not None) == offered
    if spec.startswith(ZEN):
        assert (pairs(func, spec.replace(ZEN, XEON), TILES) is not None) == offered
        assert pairs(func, spec, TILES) is None


SHAPES = [
    (1, 9, 32, 8, 16),
    (2, 8, 33, 4, 17),
    (1, 9, 64, 6, 24),
    (1, 18, 50, 32, 40),
    (1, 9, 256, 6, 16),
    (1, 38, 49, 8, 32),
    (2, 9, 33, 2, 17),
]


@cache
def attention_of(shape: tuple[int, int, int, int, int]) -> tuple[Func, list[Array], Array]:
    """A function, its arguments and its result."""
    func = attention(*shape)
    args = arguments(func)
    return func, args, run(func, args)[0]


@pytest.mark.parametrize(
    ("shape", "name", "spec"),
    [*((s, NAME, ZEN) for s in SHAPES), *((s, TILES, XEON) for s in SHAPES[1::2])],
)
def test_every_choice_computes_the_same(
    shape: tuple[int, int, int, int, int], name: str, spec: str
) -> None:
    """Odd keys, and columns, rows and pieces that are left over."""
    rng, target = random.Random(str(shape)), Target.parse(spec)
    func, args, expected = attention_of(shape)
    sketch = pairs(func, spec, name)
    assert sketch is not None and generate(func, target)[0].name == name
    valid = [c for c in draws(sketch, rng) if sketch.valid(c)]
    for choices in (sketch.default, next((c for c in valid if c["part"]), valid[0])):
        sch = Schedule(func)
        sketch.apply(sch, choices)
        verify(sch.func)
        (found,) = run(sch.func, args)
        assert_near(found, expected)


@pytest.mark.parametrize("name", [NAME, TILES])
@pytest.mark.parametrize("shape", SHAPES)
def test_code_computes_the_same(shape: tuple[int, int, int, int, int], name: str) -> None:
    target = Target.parse("cpu -threads=2")
    func, args, expected = attention_of(shape)
    sketch = pairs(func, target.spec, name)
    if sketch is None:
        pytest.skip("this processor has no such products of bf16")
    sch = Schedule(func)
    sketch.apply(sch, sketch.default)
    code = compile_func(sch.func, target)
    assert_near(code(*args), expected)


@pytest.mark.parametrize(("keys", "widths"), [(48, "yz"), (50, "xyz"), (49, "xyz")])
def test_both_products_are_by_the_instruction(keys: int, widths: str) -> None:
    """Keys and columns that are left over, too. Only the last of odd terms is widened."""
    asm = stage_text(parse(module(2, 21, keys, 8, 40)), ZEN, "asm")
    assert {m[1] for m in re.finditer(r"vdpbf16ps.*%([xyz])mm", asm)} == set(widths)
    assert bool(re.search(r"\s(shll|vpslld)\s+\$16,", asm)) == (keys % 2 > 0)
    assert not re.search(r"\svpinsr", asm)


@pytest.mark.parametrize("keys", [48, 50, 49])
def test_both_products_are_in_tile_registers(keys: int) -> None:
    """All of them, but for the last of odd terms."""
    asm = stage_text(parse(module(2, 33, keys, 8, 40)), XEON, "asm")
    assert len(re.findall(r"tdpbf16ps", asm)) >= 2
    assert "vdpbf16ps" not in asm
