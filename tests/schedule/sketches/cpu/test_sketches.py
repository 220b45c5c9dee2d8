"""Sketches: whatever is chosen, a schedule computes what its function did, as loops and as code.

Every group of a set of small HLO programs is scheduled for several machines with defaults and with
random choices. The operands are small integers, so that sums in any order are exact. The sizes
are odd on purpose: every tile, vector and thread meets a ragged edge somewhere.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import AxisKind, Block, For, Func, Kind, Scope
from nestwright.ir.loop.notes import FROZEN
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import equal, walk
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.language.trace import Trace
from nestwright.schedule.legality import bound_vars
from nestwright.schedule.sketches.cpu.reductions import full_reduction as total
from nestwright.schedule.sketches.generate import default_schedule, generate
from nestwright.schedule.space.space import Choices, Sketch
from nestwright.te.from_hlo import lower_group

TARGETS = (
    "cpu -mcpu=x86-64-v4 -threads=2",
    "cpu -mcpu=haswell -threads=1",
    "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -threads=4",
)
HOST = "cpu -threads=2"

REDUCERS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
addi { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b) }
addh { a = f16[] parameter(0)
  b = f16[] parameter(1)
  ROOT r = f16[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
argmax { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  x = f32[] select(c, a, b)
  k = s32[] select(c, i, j)
  ROOT r = (f32[], s32[]) tuple(x, k) }
"""

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCHED = (
    "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}"
)
GELU = (
    "h = f32[SHAPE] broadcast(f32[] constant(0.5)), dimensions={} | x = f32[SHAPE] erf(t) | "
    "o = f32[SHAPE] broadcast(f32[] constant(1)), dimensions={} | y = f32[SHAPE] add(x, o) | "
    "z = f32[SHAPE] multiply(t, y) | f32[SHAPE] multiply(z, h)"
)
SOFTMAX = (
    "f32[13,37] p0 | m = f32[13] reduce(p0, f32[] constant(-inf)), dimensions={1}, to_apply=max | "
    "ms = f32[13,37] broadcast(m), dimensions={0} | d = f32[13,37] subtract(p0, ms) | "
    "e = f32[13,37] exponential(d) | "
    "s = f32[13] reduce(e, f32[] constant(0)), dimensions={1}, to_apply=add | "
    "ss = f32[13,37] broadcast(s), dimensions={0} | f32[13,37] divide(e, ss)"
)
LAYER_NORM = (
    "f32[6,83] p0 | n = f32[6] broadcast(f32[] constant(83)), dimensions={} | "
    "s = f32[6] reduce(p0, f32[] constant(0)), dimensions={1}, to_apply=add | "
    "m = f32[6] divide(s, n) | ms = f32[6,83] broadcast(m), dimensions={0} | "
    "d = f32[6,83] subtract(p0, ms) | q = f32[6,83] multiply(d, d) | "
    "v = f32[6] reduce(q, f32[] constant(0)), dimensions={1}, to_apply=add | "
    "w = f32[6] divide(v, n) | e = f32[6] broadcast(f32[] constant(0.001)), dimensions={} | "
    "we = f32[6] add(w, e) | r = f32[6] rsqrt(we) | rs = f32[6,83] broadcast(r), dimensions={0} | "
    "y = f32[6,83] multiply(d, rs) | (f32[6,83], f32[6], f32[6]) tuple(y, m, r)"
)

CASES = {
    "matmul": f"f32[13,29] p0 | f32[29,37] p1 | f32[13,37] dot(p0, p1), {DOT}",
    "unit last axis": "f32[13,4] p0 | f32[37,4] p1 | a = f32[13,1] slice(p0), "
    "slice={[0:13], [1:2]} | b = f32[37,1] slice(p1), slice={[0:37], [2:3]} | "
    "x = f32[13,37,1] broadcast(a), dimensions={0,2} | "
    "y = f32[13,37,1] broadcast(b), dimensions={1,2} | f32[13,37,1] maximum(x, y)",
    "planes": "f32[5,7,7,7] p0 | s = f32[5,7] reduce(p0, f32[] constant(0)), dimensions={2,3}, "
    "to_apply=add | n = f32[5,7] broadcast(f32[] constant(49)), dimensions={} | "
    "f32[5,7] divide(s, n)",
    "planes of larger ones": "f32[5,7,7,9] p0 | x = f32[5,7,7,7] slice(p0), "
    "slice={[0:5], [0:7], [0:7], [1:8]} | "
    "f32[5,7] reduce(x, f32[] constant(-inf)), dimensions={2,3}, to_apply=max",
    "matmul wide": f"f32[9,7] p0 | f32[7,150] p1 | f32[9,150] dot(p0, p1), {DOT}",
    "matmul even": f"f32[16,12] p0 | f32[12,64] p1 | f32[16,64] dot(p0, p1), {DOT}",
    "matmul narrow": f"f32[23,31] p0 | f32[31,3] p1 | f32[23,3] dot(p0, p1), {DOT}",
    "matmul transposed": "f32[13,29] p0 | f32[18,29] p1 | f32[13,18] dot(p0, p1), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "matmul s32": f"s32[7,15] p0 | s32[15,21] p1 | s32[7,21] dot(p0, p1), {DOT}",
    "matmul bf16": f"bf16[7,15] p0 | bf16[15,21] p1 | bf16[7,21] dot(p0, p1), {DOT}",
    "matmul f16": f"f16[7,15] p0 | f16[15,21] p1 | f16[7,21] dot(p0, p1), {DOT}",
    "matmul mixed": f"bf16[7,15] p0 | bf16[15,21] p1 | f32[7,21] dot(p0, p1), {DOT}",
    "matrix vector": f"f32[31,45] p0 | f32[45] p1 | f32[31] dot(p0, p1), {DOT}",
    "vector matrix": "f32[45] p0 | f32[45,31] p1 | f32[31] dot(p0, p1), "
    "lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "batched dot": f"f32[3,7,11] p0 | f32[3,11,19] p1 | f32[3,7,19] dot(p0, p1), {BATCHED}",
    "dot bias gelu": f"f32[10,17] p0 | f32[17,35] p1 | f32[35] p2 | d = f32[10,35] dot(p0, p1), "
    f"{DOT} | b = f32[10,35] broadcast(p2), dimensions={{1}} | t = f32[10,35] add(d, b) | "
    + GELU.replace("SHAPE", "10,35"),
    "dot residual": f"f32[10,17] p0 | f32[17,35] p1 | f32[10,35] p2 | d = f32[10,35] dot(p0, p1), "
    f"{DOT} | f32[10,35] add(d, p2)",
    "dot twice out": f"f32[10,17] p0 | f32[17,35] p1 | d = f32[10,35] dot(p0, p1), {DOT} | "
    "n = f32[10,35] negate(d) | (f32[10,35], f32[10,35]) tuple(d, n)",
    "dot row sums": f"f32[10,17] p0 | f32[17,35] p1 | d = f32[10,35] dot(p0, p1), {DOT} | "
    "f32[10] reduce(d, f32[] constant(0)), dimensions={1}, to_apply=add",
    "heads split": f"f32[10,17] p0 | f32[17,48] p1 | f32[48] p2 | d = f32[10,48] dot(p0, p1), {DOT}"
    " | b = f32[10,48] broadcast(p2), dimensions={1} | t = f32[10,48] add(d, b) | "
    "r = f32[2,5,3,16] reshape(t) | f32[2,3,5,16] transpose(r), dimensions={0,2,1,3}",
    "heads merge": f"f32[6,5,7] p0 | f32[6,7,8] p1 | d = f32[6,5,8] dot(p0, p1), {BATCHED} | "
    "r = f32[2,3,5,8] reshape(d) | t = f32[2,5,3,8] transpose(r), dimensions={0,2,1,3} | "
    "f32[10,24] reshape(t)",
    "conv 3x3": "f32[1,9,7,5] p0 | f32[3,3,5,6] p1 | f32[1,5,4,6] convolution(p0, p1), "
    "window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
    "conv bias relu": "f32[1,5,6,3] p0 | f32[3,3,3,19] p1 | f32[19] p2 | "
    "c = f32[1,5,6,19] convolution(p0, p1), window={size=3x3 pad=1_1x1_1}, "
    "dim_labels=b01f_01io->b01f | b = f32[1,5,6,19] broadcast(p2), dimensions={3} | "
    "s = f32[1,5,6,19] add(c, b) | "
    "z = f32[1,5,6,19] broadcast(f32[] constant(0)), dimensions={} | f32[1,5,6,19] maximum(s, z)",
    "conv 1x1": "f32[1,6,5,7] p0 | f32[1,1,7,33] p1 | f32[1,6,5,33] convolution(p0, p1), "
    "window={size=1x1}, dim_labels=b01f_01io->b01f",
    "conv dilated": "f32[1,8,9,3] p0 | f32[2,2,3,5] p1 | f32[1,6,7,5] convolution(p0, p1), "
    "window={size=2x2 rhs_dilate=2x2}, dim_labels=b01f_01io->b01f",
    "conv nchw": "f32[1,3,7,8] p0 | f32[6,3,3,3] p1 | f32[1,6,7,8] convolution(p0, p1), "
    "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01",
    "depthwise": "f32[1,7,6,18] p0 | f32[3,3,1,18] p1 | f32[1,7,6,18] convolution(p0, p1), "
    "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=18",
    "depthwise relu": "f32[1,7,6,18] p0 | f32[3,3,1,18] p1 | c = f32[1,4,3,18] "
    "convolution(p0, p1), window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, "
    "feature_group_count=18 | z = f32[1,4,3,18] broadcast(f32[] constant(0)), dimensions={} | "
    "f32[1,4,3,18] maximum(c, z)",
    "max pool": "f32[1,9,8,21] p0 | f32[1,5,4,21] reduce-window(p0, f32[] constant(-inf)), "
    "window={size=1x3x2x1 stride=1x2x2x1 pad=0_0x1_1x0_0x0_0}, to_apply=max",
    "mean pool": "f32[2,5,6,19] p0 | s = f32[2,19] reduce(p0, f32[] constant(0)), "
    "dimensions={1,2}, to_apply=add | c = f32[2,19] broadcast(f32[] constant(0.5)), dimensions={} "
    "| f32[2,19] multiply(s, c)",
    "softmax": SOFTMAX,
    "log softmax too": SOFTMAX.replace(" | f32[13,37] divide(e, ss)", "")
    + " | p = f32[13,37] divide(e, ss) | l = f32[13] log(s) | "
    "ls = f32[13,37] broadcast(l), dimensions={0} | q = f32[13,37] subtract(d, ls) | "
    "(f32[13,37], f32[13,37]) tuple(q, p)",
    "layer norm": LAYER_NORM,
    "sum all": "f32[67,129] p0 | f32[] reduce(p0, f32[] constant(0)), dimensions={0,1}, "
    "to_apply=add",
    "sum all product": "f32[70,125] p0 | f32[70,125] p1 | f32[70,125] p2 | "
    "m = f32[70,125] multiply(p1, p2) | s = f32[70,125] add(p0, m) | "
    "f32[] reduce(s, f32[] constant(0)), dimensions={0,1}, to_apply=add",
    "sum rows": "f32[9,131] p0 | f32[9] reduce(p0, f32[] constant(0)), dimensions={1}, "
    "to_apply=add",
    "sum columns": "f32[41,53] p0 | f32[53] reduce(p0, f32[] constant(0)), dimensions={0}, "
    "to_apply=add",
    "sum middle": "f32[4,15,23] p0 | f32[4,23] reduce(p0, f32[] constant(0)), dimensions={1}, "
    "to_apply=add",
    "sum s32": "s32[9,70] p0 | s32[9] reduce(p0, s32[] constant(0)), dimensions={1}, to_apply=addi",
    "sum f16": "f16[9,70] p0 | f16[9] reduce(p0, f16[] constant(0)), dimensions={1}, to_apply=addh",
    "argmax": "f32[9,43] p0 | i = s32[9,43] iota(), iota_dimension=1 | (f32[9], s32[9]) "
    "reduce(p0, i, f32[] constant(-inf), s32[] constant(0)), dimensions={1}, to_apply=argmax",
    "max and argmax down": "f32[19,43] p0 | i = s32[19,43] iota(), iota_dimension=0 | "
    "m = f32[43] reduce(p0, f32[] constant(-inf)), dimensions={0}, to_apply=max | "
    "r = (f32[43], s32[43]) reduce(p0, i, f32[] constant(-inf), s32[] constant(0)), "
    "dimensions={0}, to_apply=argmax | j = s32[43] get-tuple-element(r), index=1 | "
    "(f32[43], s32[43]) tuple(m, j)",
    "max and argmax of few columns": "f32[19,10] p0 | i = s32[19,10] iota(), iota_dimension=0 | "
    "m = f32[10] reduce(p0, f32[] constant(-inf)), dimensions={0}, to_apply=max | "
    "r = (f32[10], s32[10]) reduce(p0, i, f32[] constant(-inf), s32[] constant(0)), "
    "dimensions={0}, to_apply=argmax | j = s32[10] get-tuple-element(r), index=1 | "
    "(f32[10], s32[10]) tuple(m, j)",
    "sibling sums": "f32[9,43] p0 | s = f32[9] reduce(p0, f32[] constant(0)), dimensions={1}, "
    "to_apply=add | m = f32[9] reduce(p0, f32[] constant(-inf)), dimensions={1}, to_apply=max | "
    "n = f32[9] negate(m) | (f32[9], f32[9]) tuple(s, n)",
    "token norm": "f32[1,24] p0 | f32[7,24] p1 | c = f32[8,24] concatenate(p0, p1), dimensions={0} "
    "| s = f32[8] reduce(c, f32[] constant(0)), dimensions={1}, to_apply=add | "
    "b = f32[8,24] broadcast(s), dimensions={0} | f32[8,24] subtract(c, b)",
    "broadcasts": "f32[11,27] p0 | f32[27] p1 | f32[11] p2 | "
    "b = f32[11,27] broadcast(p1), dimensions={1} | c = f32[11,27] broadcast(p2), dimensions={0} | "
    "m = f32[11,27] multiply(p0, b) | f32[11,27] add(m, c)",
    "flat": "f32[5,7,9] p0 | f32[5,7,9] p1 | f32[5,7,9] subtract(p0, p1)",
    "large flat": "f32[130,127] p0 | f32[130,127] p1 | f32[130,127] multiply(p0, p1)",
    "mixed types": "bf16[7,45] p0 | s32[7,45] p1 | a = f32[7,45] convert(p0) | "
    "b = f32[7,45] convert(p1) | c = pred[7,45] compare(a, b), direction=LT | "
    "s = f32[7,45] select(c, a, b) | bf16[7,45] convert(s)",
    "transpose": "f32[19,35] p0 | f32[35,19] transpose(p0), dimensions={1,0}",
    "transpose bytes": "u8[67,131] p0 | u8[131,67] transpose(p0), dimensions={1,0}",
    "transpose short axis": "u16[2,37,5,7] p0 | u16[2,5,7,37] transpose(p0), dimensions={0,2,3,1}",
    "transpose 4d": "f32[2,5,3,9] p0 | f32[2,3,9,5] transpose(p0), dimensions={0,2,3,1}",
    "gather": "f32[19,21] p0 | s32[6] p1 | f32[6,21] gather(p0, p1), offset_dims={1}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,21}",
    "concatenate": "f32[5,9] p0 | f32[5,12] p1 | n = f32[5,9] negate(p0) | "
    "f32[5,21] concatenate(n, p1), dimensions={1}",
    "pad slice": "f32[9,14] p0 | s = f32[7,5] slice(p0), slice={[1:8], [2:12:2]} | "
    "f32[9,9] pad(s, f32[] constant(1)), padding=1_1x2_2",
    "several outputs": "f32[9,33] p0 | f32[9,33] p1 | a = f32[9,33] add(p0, p1) | "
    "n = f32[9,33] negate(a) | s = f32[9] reduce(n, f32[] constant(0)), dimensions={1}, "
    "to_apply=add | (f32[9,33], f32[9,33], f32[9]) tuple(a, n, s)",
    "train step": "f32[25,40] p0 | f32[25,40] p1 | g = f32[25,40] multiply(p0, p1) | "
    "s = f32[40] reduce(g, f32[] constant(0)), dimensions={0}, to_apply=add | "
    "(f32[25,40], f32[40]) tuple(g, s)",
    "select and scatter": "f32[7,9] p0 | s32[4,1] p1 | f32[4,9] p2 | f32[7,9] scatter(p0, p1, p2),"
    " update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=add",
    "scalar": "f32[] p0 | f32[] p1 | f32[] add(p0, p1)",
    "unit sizes": f"f32[1,1] p0 | f32[1,40] p1 | f32[1,40] dot(p0, p1), {DOT}",
}

KNOWN = ("matmul", "batched dot", "dot bias gelu", "conv bias relu", "conv 1x1", "depthwise")
"""Cases that are also tried with a second parameter that is known when the model is built."""


def module_text(case: str) -> str:
    """``shape parameter | .. | name = shape opcode(..) | .. | root`` as a module."""
    *parts, root = (part.strip() for part in case.split(" | "))
    rows = []
    for n, part in enumerate(parts):
        shape, _, name = part.partition(" ")
        rows.append(f"  {part}" if " = " in part else f"  {name} = {shape} parameter({n})")
    return "\n".join(["HloModule m", REDUCERS, "ENTRY main {", *rows, f"  ROOT root = {root}", "}"])


@cache
def groups(case: str) -> tuple[Func, ...]:
    """The loop functions of a case's groups, as every front-end's model comes to them."""
    name, _, frozen = case.partition(", ")
    module = optimize(parse(module_text(CASES[name])))
    funcs = [lower_group(g.computation, g.name) for g in fuse(module.entry).groups]
    return tuple(FROZEN.put(f, (1,)) if frozen else f for f in funcs)


@cache
def known(func: Func) -> tuple[list[Array], list[Array]]:
    """Arguments of small whole numbers, and what the function makes of them."""
    rng = np.random.default_rng(3)
    inputs = func.params[: len(func.params) - func.outputs]
    args = [np.asarray(rng.integers(0, 5, b.shape) - 2).astype(to_numpy(b.dtype)) for b in inputs]
    return args, run(func, args)


def assert_same(results: Any, expected: list[Array]) -> None:
    """Equal; where a function was rounded on the way, sums in another order may differ a little."""
    found = results if isinstance(results, list | tuple) else [results]
    for got, want in zip(found, expected, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        whole = bool(np.all(want.astype(np.float64) % 1 == 0))
        tolerance = 0.0 if whole else 1e-2 if want.dtype.itemsize < 4 else 2e-5
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
        )


def draws(sketch: Sketch, rng: random.Random, count: int) -> Iterator[Choices]:
    """Up to ``count`` different random choices that the sketch calls valid."""
    seen: set[tuple[object, ...]] = set()
    for _ in range(20 * count):
        choices = {name: rng.choice(values) for name, values in sketch.decisions.items()}
        if tuple(choices.values()) not in seen and sketch.valid(choices):
            seen.add(tuple(choices.values()))
            yield choices
        if len(seen) == count:
            return


@pytest.fixture(params=[*CASES, *(f"{name}, frozen" for name in KNOWN)])
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, cheap_forks: None) -> str:
    """A case's name; small groups count as heavy and worth a thread: nothing has to be large."""
    monkeypatch.setattr(total, "HEAVY", 64)
    return str(request.param)


def apply(func: Func, sketch: Sketch, choices: Choices) -> Schedule:
    sch = Schedule(func)
    sketch.apply(sch, choices)
    verify(sch.func)
    return sch


def check(func: Func, sch: Schedule, spec: str, replays: bool) -> None:
    """The scheduled function computes what ``func`` does, and is what its trace from JSON makes."""
    args, expected = known(func)
    try:
        assert_same(run(sch.func, args), expected)
        if not replays:
            return
        plain = json.loads(json.dumps(sch.trace.to_json()))
        assert equal(Trace.from_json(plain).replay(func).func, sch.func)
    except BaseException:
        print(f"{spec}\n{sch.trace.show()}\n{show(sch.func)}")
        raise


def test_choices_compute_the_same(case: str) -> None:
    rng = random.Random(f"{case} loops")
    drawn, other = rng.sample(TARGETS, 2)
    for func in groups(case):
        for spec in (drawn, other):
            sketches = generate(func, Target.parse(spec))
            default = apply(func, sketches[0], sketches[0].default)
            check(func, default, spec, replays=spec == drawn)
            for sketch in sketches if spec == drawn else ():
                for choices in draws(sketch, rng, 1):
                    check(func, apply(func, sketch, choices), spec, replays=True)


def test_choices_compile_to_the_same(case: str) -> None:
    target, rng = Target.parse(HOST), random.Random(f"{case} code")
    for func in groups(case):
        args, expected = known(func)
        sketches = generate(func, target)
        drawn = [(s, c) for s in rng.sample(sketches, 1) for c in draws(s, rng, 1)]
        for sketch, choices in ((sketches[0], sketches[0].default), *drawn):
            sch = apply(func, sketch, choices)
            assert_same(compile_func(sch.func, target)(*args), expected)


def reduces_by_lanes(func: Func) -> bool:
    """Whether a reduction runs as lanes: they meet in one element on purpose."""
    lanes = {s.var for s in walk(func.body) if isinstance(s, For) and s.kind is Kind.VECTOR}
    blocks = [s for s in walk(func.body) if isinstance(s, Block)]
    return any(lanes & bound_vars(b, AxisKind.REDUCE) for b in blocks)


def test_threads_and_lanes_never_meet(case: str) -> None:
    target = Target.parse(TARGETS[0])
    for func in groups(case):
        sch = default_schedule(func, target)
        args, expected = known(func)
        if not reduces_by_lanes(sch.func):
            assert_same(run(sch.func, args, seed=5, check_races=True), expected)


def test_generate_is_deterministic(case: str) -> None:
    rng = random.Random(f"{case} twice")
    for func in groups(case):
        for spec in rng.sample(TARGETS, 1):
            target = Target.parse(spec)
            first, again = generate(func, target), generate(func, target)
            for a, b in zip(first, again, strict=True):
                assert (a.name, a.kind, a.decisions) == (b.name, b.kind, b.decisions)
                assert a.default == b.default and a.valid(a.default)
                assert all(a.default[n] in values for n, values in a.decisions.items())
                assert a.default.keys() == a.decisions.keys()
                for choices in draws(a, random.Random(1), 3):
                    assert b.valid(choices) and a.cost(choices) == b.cost(choices) > 0
            assert len({s.name for s in first}) == len(first)
            default = apply(func, first[0], first[0].default)
            assert equal(default_schedule(func, target).func, default.func)


PREFERRED = {
    "matmul": "tiling",
    "matmul bf16": "tiling",
    "dot bias gelu": "tiling",
    "heads split": "tiling",
    "heads merge": "tiling",
    "dot twice out": "tiling",
    "conv bias relu": "tiling",
    "depthwise": "depthwise",
    "max pool": "tiling",
    "sum columns": "tiling",
    "softmax": "rows",
    "log softmax too": "rows",
    "layer norm": "rows",
    "sum rows": "row_tiles",
    "argmax": "rows",
    "max and argmax down": "alone",
    "max and argmax of few columns": "alone",
    "sibling sums": "rows",
    "token norm": "rows",
    "sum all": "total",
    "sum all product": "total",
    "flat": "alone",
    "transpose": "alone",
    "gather": "alone",
    "select and scatter": "alone",
}


@pytest.mark.parametrize("name", PREFERRED)
def test_preferred_sketch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(total, "HEAVY", 1 << 13)
    (func,) = groups(name)
    assert generate(func, Target.parse(TARGETS[0]))[0].name.partition("@")[0] == PREFERRED[name]


def test_a_unit_axis_does_not_take_the_lanes() -> None:
    (func,) = groups("unit last axis")
    sch = default_schedule(func, Target.parse("cpu -mcpu=x86-64-v4 -threads=2"))
    (block,) = sch.blocks()
    lane = sch.get_loops(block)[-1]
    assert sch.loop(lane).kind is Kind.VECTOR and sch.extent(lane) == 16


@pytest.mark.parametrize(("name", "whole"), [("planes", True), ("planes of larger ones", False)])
def test_planes_are_summed_by_vectors_if_they_are_one_stretch(name: str, whole: bool) -> None:
    (func,) = groups(name)
    sch = default_schedule(func, Target.parse("cpu -mcpu=x86-64-v4 -threads=2"))
    partial = [sch.loop(sch.get_loops(b)[-1]).kind for b in sch.blocks() if b.name.endswith("_rf")]
    assert partial == [Kind.VECTOR] * whole


@pytest.mark.parametrize("name", ["matmul", "dot bias gelu", "heads split", "conv bias relu"])
def test_accumulators_live_in_registers(name: str) -> None:
    (func,) = groups(name)
    for spec in TARGETS:
        target = Target.parse(spec)
        sch = default_schedule(func, target)
        (sums,) = [b for b in sch.blocks() if sch.block(b).writes and reduces(sch.block(b))]
        block, innermost = sch.block(sums), sch.loop(sch.get_loops(sums)[-1])
        assert block.writes[0].buffer.scope is Scope.REGISTER
        assert innermost.kind is Kind.VECTOR
        assert sch.extent(sch.get_loops(sums)[-1]) <= target.lanes(block.writes[0].buffer.dtype)


def reduces(block: Block) -> bool:
    return any(a.kind is AxisKind.REDUCE for a in block.axes)
