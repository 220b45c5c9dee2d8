"""Each opcode: the loop function that it lowers to computes what the HLO interpreter says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import BY_NAME, accumulator, f32, to_numpy
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import Shape
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.affine import Interval, bounds
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Block, Var
from nestwright.ir.loop.regions import loop_ranges
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import loads_under, walk
from nestwright.te.from_hlo import lower_group

REDUCERS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
half { a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT r = bf16[] add(a, b) }
keep { a = f32[] parameter(0)
  ROOT b = f32[] parameter(1) }
twice { a = f32[] parameter(0)
  t = f32[] constant(2)
  ROOT r = f32[] multiply(a, t) }
odd { a = f32[] parameter(0)
  b = f32[] parameter(1)
  t = f32[] multiply(a, b)
  s = f32[] add(a, b)
  ROOT r = f32[] add(t, s) }
argmax { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  x = f32[] select(c, a, b)
  k = s32[] select(c, i, j)
  ROOT r = (f32[], s32[]) tuple(x, k) }
times { a = u8[] parameter(0)
  b = u8[] parameter(1)
  ROOT r = u8[] multiply(a, b) }
pair { a = f32[] parameter(0)
  c = f32[] parameter(1)
  b = f32[] parameter(2)
  d = f32[] parameter(3)
  s = f32[] add(a, b)
  t = f32[] add(c, d)
  ROOT r = (f32[], f32[]) tuple(s, t) }
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }
total { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER }
ge { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE }
"""

GATHER = "index_vector_dim=1, slice_sizes={1,2}"
CASES = {
    "add": "f32[2,3] p0 | f32[2,3] p1 | f32[2,3] add(p0, p1)",
    "integers": "s32[7] p0 | s32[7] p1 | s32[7] divide(p0, p1)",
    "remainder": "s32[7] p0 | s32[7] p1 | s32[7] remainder(p0, p1)",
    "tanh": "f32[5] p0 | f32[5] tanh(p0)",
    "bf16": "bf16[5] p0 | bf16[5] p1 | bf16[5] multiply(p0, p1)",
    "compare": "f32[2,3] p0 | f32[2,3] p1 | pred[2,3] compare(p0, p1), direction=LE",
    "total order": "f32[9] p0 | f32[9] p1 | pred[9] compare(p0, p1), direction=LT, type=TOTALORDER",
    "convert": "f32[5] p0 | s32[5] convert(p0)",
    "to pred": "f32[5] p0 | pred[5] convert(p0)",
    "bits": "f32[5] p0 | u32[5] bitcast-convert(p0)",
    "bits down": "f32[5] p0 | u8[5,4] bitcast-convert(p0)",
    "bits up": "u16[5,2] p0 | f32[5] bitcast-convert(p0)",
    "bits up to integers": "u16[5,2] p0 | s32[5] bitcast-convert(p0)",
    "clamp": "f32[] p0 | f32[4] p1 | f32[] p2 | f32[4] clamp(p0, p1, p2)",
    "select": "pred[4] p0 | f32[4] p1 | f32[4] p2 | f32[4] select(p0, p1, p2)",
    "select all": "pred[] p0 | f32[4] p1 | f32[4] p2 | f32[4] select(p0, p1, p2)",
    "is-finite": "f32[4] p0 | pred[4] is-finite(p0)",
    "reduce-precision": "f32[9] p0 | f32[9] reduce-precision(p0), exponent_bits=4, mantissa_bits=3",
    "iota": "f32[2,3] iota(), iota_dimension=1",
    "few constants": "f32[2,2] constant({{1, 2}, {3, -0}})",
    "splat": "f32[3,5] broadcast(f32[] constant(2.5)), dimensions={}",
    "broadcast": "f32[3] p0 | f32[2,3,4] broadcast(p0), dimensions={1}",
    "reshape merge": "f32[2,3,4] p0 | f32[2,12] reshape(p0)",
    "reshape split": "f32[6,4] p0 | f32[2,3,4,1] reshape(p0)",
    "reshape mix": "f32[4,6] p0 | f32[3,8] reshape(p0)",
    "reshape scalar": "f32[1,1] p0 | f32[] reshape(p0)",
    "transpose": "f32[2,3,4] p0 | f32[4,2,3] transpose(p0), dimensions={2,0,1}",
    "slice": "f32[7,5] p0 | f32[3,2] slice(p0), slice={[1:7:2], [3:5]}",
    "reverse": "f32[3,4] p0 | f32[3,4] reverse(p0), dimensions={1}",
    "pad": "f32[3,4] p0 | f32[] p1 | f32[8,3] pad(p0, p1), padding=1_2_1x-1_0",
    "pad empty": "f32[0] p0 | f32[] p1 | f32[4] pad(p0, p1), padding=2_2",
    "concatenate": "f32[2,3] p0 | f32[2,0] p1 | f32[2,2] p2 | f32[2,5] concatenate(p0, p1, p2), "
    "dimensions={1}",
    "inside concatenate": "f32[3] p0 | f32[2] p1 | c = f32[5] concatenate(p0, p1), "
    "dimensions={0} | f32[5] negate(c)",
    "dynamic-slice": "f32[5,6] p0 | s32[] p1 | s32[] p2 | f32[2,3] dynamic-slice(p0, p1, p2), "
    "dynamic_slice_sizes={2,3}",
    "dynamic-update-slice": "f32[5,6] p0 | f32[2,3] p1 | s32[] p2 | s32[] p3 | "
    "f32[5,6] dynamic-update-slice(p0, p1, p2, p3)",
    "inside update": "f32[5] p0 | f32[2] p1 | s32[] p2 | u = f32[5] "
    "dynamic-update-slice(p0, p1, p2) | f32[5] negate(u)",
    "gather": "f32[4,5] p0 | s32[3,2] p1 | f32[3,2] gather(p0, p1), offset_dims={1}, "
    f"collapsed_slice_dims={{0}}, start_index_map={{0,1}}, {GATHER}",
    "take": "f32[4,5] p0 | s32[3] p1 | f32[3,5] gather(p0, p1), offset_dims={1}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}",
    "gather of empty slices": "f32[4,5] p0 | s32[3] p1 | f32[3,5] gather(p0, p1), "
    "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    "slice_sizes={0,5}",
    "gather of nothing": "f32[0,5] p0 | s32[3] p1 | f32[3,5] gather(p0, p1), offset_dims={1}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={0,5}",
    "gather batches": "f32[3,5] p0 | s32[3,2,1] p1 | f32[3,2] gather(p0, p1), offset_dims={}, "
    "collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, "
    "start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}",
    "gather batches, vectors first": "f32[3,5] p0 | s32[1,3,2] p1 | f32[3,2] gather(p0, p1), "
    "offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, "
    "start_indices_batching_dims={1}, index_vector_dim=0, slice_sizes={1,1}",
    "map": "f32[4] p0 | f32[4] map(p0), dimensions={0}, to_apply=twice",
    "reduce": "f32[3,4,5] p0 | f32[] p1 | f32[4] reduce(p0, p1), dimensions={0,2}, to_apply=add",
    "reduce all": "f32[3,4] p0 | f32[] p1 | f32[] reduce(p0, p1), dimensions={0,1}, to_apply=max",
    "reduce nothing": "f32[3,0] p0 | f32[] p1 | f32[3] reduce(p0, p1), dimensions={1}, "
    "to_apply=add",
    "reduce oddly": "f32[3,4] p0 | f32[] p1 | f32[3] reduce(p0, p1), dimensions={1}, to_apply=odd",
    "reduce bf16": "bf16[3,9] p0 | bf16[] p1 | bf16[3] reduce(p0, p1), dimensions={1}, "
    "to_apply=half",
    "reduce bytes": "u8[3,9] p0 | u8[] p1 | u8[3] reduce(p0, p1), dimensions={1}, to_apply=times",
    "argmax": "f32[3,4] p0 | s32[3,4] p1 | f32[] p2 | s32[] p3 | (f32[3], s32[3]) "
    "reduce(p0, p1, p2, p3), dimensions={1}, to_apply=argmax",
    "pool": "f32[1,6,6,2] p0 | f32[] p1 | f32[1,3,3,2] reduce-window(p0, p1), "
    "window={size=1x3x3x1 stride=1x2x2x1 pad=0_0x0_1x1_0x0_0}, to_apply=max",
    "dilated window": "f32[5] p0 | f32[] p1 | f32[7] reduce-window(p0, p1), "
    "window={size=2 pad=1_0 lhs_dilate=2 rhs_dilate=3}, to_apply=add",
    "cumulative sum": "f32[2,6] p0 | f32[] p1 | f32[2,6] reduce-window(p0, p1), "
    "window={size=1x6 pad=0_0x5_0}, to_apply=add",
    "backward sum": "f32[6,2] p0 | f32[] p1 | f32[6,2] reduce-window(p0, p1), "
    "window={size=6x1 pad=0_5x0_0}, to_apply=add",
    "a window as wide": "f32[2,6] p0 | f32[] p1 | f32[2,3] reduce-window(p0, p1), "
    "window={size=1x6 pad=0_0x1_1}, to_apply=add",
    "every second sum": "f32[2,6] p0 | f32[] p1 | f32[2,3] reduce-window(p0, p1), "
    "window={size=1x6 stride=1x2 pad=0_0x5_0}, to_apply=add",
    "sums and a row": "f32[2,6] p0 | f32[] p1 | f32[3,6] reduce-window(p0, p1), "
    "window={size=1x6 pad=1_0x5_0}, to_apply=add",
    "the last so far": "f32[2,6] p0 | f32[] p1 | f32[2,6] reduce-window(p0, p1), "
    "window={size=1x6 pad=0_0x5_0}, to_apply=keep",
    "two windows": "f32[6] p0 | f32[6] p1 | f32[] p2 | f32[] p3 | (f32[5], f32[5]) "
    "reduce-window(p0, p1, p2, p3), window={size=2}, to_apply=pair",
    "dot": "f32[3,4] p0 | f32[4,5] p1 | f32[3,5] dot(p0, p1), lhs_contracting_dims={1}, "
    "rhs_contracting_dims={0}",
    "outer": "f32[3] p0 | f32[2] p1 | f32[3,2] dot(p0, p1), lhs_contracting_dims={}, "
    "rhs_contracting_dims={}",
    "batched dot": "f32[4,2,3] p0 | f32[2,5,4] p1 | f32[2,3,5] dot(p0, p1), lhs_batch_dims={1}, "
    "rhs_batch_dims={0}, lhs_contracting_dims={0}, rhs_contracting_dims={2}",
    "narrow dot": "bf16[3,8] p0 | bf16[8,5] p1 | bf16[3,5] dot(p0, p1), lhs_contracting_dims={1}, "
    "rhs_contracting_dims={0}",
    "integer dot": "s8[3,4] p0 | s8[4,5] p1 | s32[3,5] dot(p0, p1), lhs_contracting_dims={1}, "
    "rhs_contracting_dims={0}",
    "convolution": "f32[2,5,5,3] p0 | f32[3,3,3,4] p1 | f32[2,3,3,4] convolution(p0, p1), "
    "window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
    "convolution 1d": "f32[2,9,3] p0 | f32[3,3,4] p1 | f32[2,5,4] convolution(p0, p1), "
    "window={size=3 rhs_dilate=2}, dim_labels=b0f_0io->b0f",
    "transposed convolution": "f32[1,4,4,2] p0 | f32[3,3,2,2] p1 | f32[1,7,7,2] "
    "convolution(p0, p1), window={size=3x3 pad=1_1x1_1 lhs_dilate=2x2 rhs_reversal=1x1}, "
    "dim_labels=b01f_01io->b01f",
    "depthwise": "f32[1,5,5,4] p0 | f32[3,3,1,4] p1 | f32[1,3,3,4] convolution(p0, p1), "
    "window={size=3x3}, dim_labels=b01f_01io->b01f, feature_group_count=4",
    "depth multiplier": "f32[1,4,4,2] p0 | f32[2,2,1,6] p1 | f32[1,3,3,6] convolution(p0, p1), "
    "window={size=2x2}, dim_labels=b01f_01io->b01f, feature_group_count=2",
    "groups": "f32[1,4,4,6] p0 | f32[2,2,3,4] p1 | f32[1,3,3,4] convolution(p0, p1), "
    "window={size=2x2}, dim_labels=b01f_01io->b01f, feature_group_count=2",
    "other labels": "f32[2,3,5,5] p0 | f32[4,3,2,2] p1 | f32[2,4,4,4] convolution(p0, p1), "
    "window={size=2x2}, dim_labels=bf01_oi01->bf01",
    "scatter add": "f32[5,4] p0 | s32[6,1] p1 | f32[6,4] p2 | f32[5,4] scatter(p0, p1, p2), "
    "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=add",
    "scatter last": "f32[5,4] p0 | s32[6,2] p1 | f32[6,2] p2 | f32[5,4] scatter(p0, p1, p2), "
    "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0,1}, "
    "index_vector_dim=1, to_apply=keep",
    "scatter batches": "f32[3,4] p0 | s32[3,2,1] p1 | f32[3,2] p2 | f32[3,4] scatter(p0, p1, p2), "
    "update_window_dims={}, inserted_window_dims={1}, input_batching_dims={0}, "
    "scatter_indices_batching_dims={0}, scatter_dims_to_operand_dims={1}, index_vector_dim=2, "
    "to_apply=add",
    "select-and-scatter": "f32[1,6,6,2] p0 | f32[1,3,3,2] p1 | f32[] p2 | f32[1,6,6,2] "
    "select-and-scatter(p0, p1, p2), window={size=1x3x3x1 stride=1x2x2x1 "
    "pad=0_0x0_1x1_0x0_0}, select=ge, scatter=add",
    "sort pairs": "f32[13] p0 | s32[13] p1 | (f32[13], s32[13]) sort(p0, p1), dimensions={0}, "
    "is_stable=true, to_apply=less",
    "sort columns": "f32[5,3] p0 | f32[5,3] sort(p0), dimensions={0}, is_stable=true, "
    "to_apply=total",
    "sort one": "f32[1] p0 | f32[1] sort(p0), dimensions={0}, to_apply=total",
    "topk": "f32[2,9] p0 | (f32[2,3], s32[2,3]) topk(p0), k=3, largest=true",
    "bottomk": "f32[2,9] p0 | (f32[2,3], s32[2,3]) topk(p0), k=3, largest=false",
}


def module_text(case: str) -> str:
    """``shape parameter | .. | name = shape opcode(..) | .. | root`` as a module."""
    *parts, root = (part.strip() for part in case.split(" | "))
    rows = []
    for n, part in enumerate(parts):
        shape, _, name = part.partition(" ")
        rows.append(f"  {part}" if " = " in part else f"  {name} = {shape} parameter({n})")
    needed = [c for c in REDUCERS.strip().split("\n}") if c]
    return "\n".join(
        ["HloModule m", "", *needed, "", "ENTRY main {", *rows, f"  ROOT root = {root}", "}"]
    )


def draw(shape: Shape, rng: np.random.Generator) -> Any:
    """Small numbers with ties, zeros and, among floats, both infinities and NaN's sign."""
    to = to_numpy(shape.dtype)
    if shape.dtype.kind == "pred":
        return rng.integers(0, 2, shape.dims).astype(to)
    if shape.dtype.is_int:
        low = 0 if shape.dtype.kind == "unsigned" else -3
        return rng.integers(low, 5, shape.dims).astype(to)
    return (rng.integers(-8, 9, shape.dims) / 4).astype(to)


def leaves(value: Any) -> list[Any]:
    return [x for v in value for x in leaves(v)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("name", CASES)
def test_opcode(name: str) -> None:
    module = parse(module_text(CASES[name]))
    func = lower_group(module.entry, "main")
    verify(func)
    rng = np.random.default_rng(7)
    for _ in range(2):
        args = [draw(p.array, rng) for p in module.entry.parameters]
        want = leaves(evaluate(module, args))
        got = run(func, args)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == np.asarray(b).dtype and a.shape == np.shape(b)
            narrow = a.dtype.itemsize < 4
            np.testing.assert_allclose(
                a.astype(np.float64),
                np.asarray(b).astype(np.float64),
                rtol=1e-2 if narrow else 1e-6,
                atol=1e-6,
            )


GUARDED = {
    *("cumulative sum", "scatter add", "scatter batches", "select-and-scatter"),
    *("sort pairs", "sort one", "topk", "bottomk"),
}
"""Whose indices are in bounds by conditions of statements, or of values in memory."""


@pytest.mark.parametrize("name", sorted(CASES.keys() - GUARDED))
def test_loads_are_in_bounds_whichever_way_a_selection_goes(name: str) -> None:
    """Lanes load for both arms of a selection."""
    func = lower_group(parse(module_text(CASES[name])).entry, "main")
    ranges: dict[Var, Interval] = dict(loop_ranges(func.body))
    for block in (s for s in walk(func.body) if isinstance(s, Block)):
        ranges |= {a.var: (0, max(a.extent - 1, 0)) for a in block.axes}
    for load in loads_under(func.body):
        for e, extent in zip(load.index, load.buffer.shape, strict=True):
            low, high = bounds(e, ranges)
            assert low >= 0 and high < extent, f"{load.buffer.name}[{e}]"


@pytest.mark.parametrize("name", ["f16", "bf16", "f8e5m2"])
def test_narrow_floats_are_summed_in_f32(name: str) -> None:
    assert accumulator(BY_NAME[name]) == f32


@pytest.mark.parametrize("name", ["f32", "f64", "s8", "u16", "s64", "pred"])
def test_other_types_are_summed_in_their_own(name: str) -> None:
    assert accumulator(BY_NAME[name]) == BY_NAME[name]
