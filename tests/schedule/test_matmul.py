"""to_matmul: products, convolutions and what is multiplied become padded matrix products."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from nestwright.ir.dtypes import to_numpy
from nestwright.ir.hlo.text import parse as parse_hlo
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import equal
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule, Trace
from nestwright.schedule.primitives.products.matmul import product_of
from nestwright.te.from_hlo import lower_group

MATMUL = """\
@func(outputs=1)
def matmul(A: f16[5, 7], B: f16[7, 9], C: f32[5, 9]):
    for i in range(5):
        for j in range(9):
            for k in range(7):
                with block("C"):
                    vi, vj, vk = spatial(5, i), spatial(9, j), reduce(7, k)
                    reads(C[vi, vj], A[vi, vk], B[vk, vj])
                    writes(C[vi, vj])
                    with init():
                        C[vi, vj] = f32(0.0)
                    C[vi, vj] = C[vi, vj] + cast(f32, A[vi, vk]) * cast(f32, B[vk, vj])
"""

GROUPS = {
    "dot": """
        x = f32[3,5,7] parameter(0)
        w = f32[3,9,7] parameter(1)
        ROOT c = f32[3,5,9] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0},
            lhs_contracting_dims={2}, rhs_contracting_dims={2}""",
    "padded": """
        x = f32[2,6,5,3] parameter(0)
        w = f32[3,3,3,4] parameter(1)
        ROOT c = f32[2,3,3,4] convolution(x, w), window={size=3x3 stride=2x2 pad=1_1x1_1},
            dim_labels=b01f_01io->b01f""",
    "dilated": """
        x = f32[1,9,3] parameter(0)
        w = f32[2,3,4] parameter(1)
        ROOT c = f32[1,6,4] convolution(x, w), window={size=2 rhs_dilate=3},
            dim_labels=b0f_0io->b0f""",
    "grouped": """
        x = f32[1,5,6] parameter(0)
        w = f32[2,3,8] parameter(1)
        ROOT c = f32[1,4,8] convolution(x, w), window={size=2}, dim_labels=b0f_0io->b0f,
            feature_group_count=2""",
    "depthwise": """
        x = f32[1,5,6] parameter(0)
        w = f32[2,1,6] parameter(1)
        ROOT c = f32[1,4,6] convolution(x, w), window={size=2}, dim_labels=b0f_0io->b0f,
            feature_group_count=6""",
    "bytes": """
        x = s8[4,7] parameter(0)
        w = s8[7,6] parameter(1)
        ROOT c = s32[4,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
}


def group(body: str) -> Func:
    return lower_group(parse_hlo(f"HloModule m\nENTRY main {{{body}}}").entry, "main")


def inputs(func: Func) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    buffers = func.params[: len(func.params) - func.outputs]
    return [rng.integers(-4, 5, b.shape).astype(to_numpy(b.dtype)) for b in buffers]


def check(before: Func, sch: Schedule) -> None:
    """What was scheduled verifies, computes the same, and is replayed from its trace."""
    verify(sch.func)
    args = inputs(before)
    for want, got in zip(run(before, args), run(sch.func, args), strict=True):
        np.testing.assert_array_equal(got, want)
    again = Trace.from_json(json.loads(json.dumps(sch.trace.to_json()))).replay(before)
    assert equal(again.func, sch.func)


def test_a_product_gets_padded_operands() -> None:
    func = parse(MATMUL)
    sch = Schedule(func)
    a, b, out = sch.to_matmul("C", (4, 8, 4), ("mk", "kn"))
    assert [x.name for x in (a, b, out)] == ["C_a", "C_b", "C_out"]
    check(func, sch)
    text = show(sch.func).split(":\n", 1)[1]
    assert text.startswith("""\
    C_a = alloc(f16[1, 8, 8])
    C_b = alloc(f16[1, 8, 16])
    C_c = alloc(f32[1, 8, 16])
    for m in range(8):
        for k in range(8):
            with block("C_a"):
                vb, vm, vk = spatial(1, 0), spatial(8, m), spatial(8, k)
                reads(A[vm, vk])
                writes(C_a[vb, vm, vk])
                C_a[vb, vm, vk] = select(vm < 5 and vk < 7, A[vm, vk], f16(0.0))
""")
    product = "cast(f32, C_a[vb, vm, vk]) * cast(f32, C_b[vb, vk, vn])"
    assert f"C_c[vb, vm, vn] + {product}" in text
    assert "C[vi, vj] = C_c[0, vi, vj]" in text


def test_extents_that_divide_need_no_padding() -> None:
    func = parse(MATMUL.replace("7", "8").replace("9", "16").replace("5", "4"))
    sch = Schedule(func)
    sch.to_matmul("C", (4, 8, 4), ("km", "nk"))
    check(func, sch)
    assert "select" not in show(sch.func)
    assert sch.block("C_a").writes[0].buffer.shape == (1, 8, 4)
    assert sch.block("C_b").writes[0].buffer.shape == (1, 16, 8)


@pytest.mark.parametrize("name", GROUPS)
def test_contractions_of_all_sorts(name: str) -> None:
    func = group(GROUPS[name])
    sch = Schedule(func)
    anchor = next(b for b in sch.blocks() if product_of(sch.block(b)) is not None)
    for feeder in sch.get_producers(anchor):
        sch.compute_inline(feeder)
    sch.to_matmul(anchor, (4, 8, 4), ("mk", "kn"))
    check(func, sch)


def test_axes_by_role() -> None:
    (conv,) = (b for b in Schedule(group(GROUPS["padded"])).blocks() if b.name == "conv")
    found = product_of(Schedule(group(GROUPS["padded"])).block(conv))
    assert found is not None
    assert [found.points(r) for r in "bmnk"] == [1, 18, 4, 27]
    found = product_of(Schedule(group(GROUPS["grouped"])).block("conv"))
    assert found is not None
    assert [found.points(r) for r in "bmnk"] == [2, 4, 4, 6]


def test_the_last_axis_runs_along_b() -> None:
    func = parse(MATMUL.replace("C[vi, vj]", "C[vj, vi]").replace("C: f32[5, 9]", "C: f32[9, 5]"))
    found = product_of(Schedule(func).block("C"))
    assert found is not None
    axes = "vi, vj, vk = spatial(5, i), spatial(9, j)"
    turned = MATMUL.replace(axes, "vj, vi, vk = spatial(9, j), spatial(5, i)")
    func = parse(turned.replace("C[vi, vj]", "C[vj, vi]").replace("C: f32[5, 9]", "C: f32[9, 5]"))
    sch = Schedule(func)
    sch.to_matmul("C", (1, 1, 1), ("mk", "nk"))
    assert sch.block("C_a").writes[0].buffer.shape == (1, 9, 7)
    check(func, sch)


def test_a_padded_feeder_goes_into_the_condition() -> None:
    func = group(GROUPS["padded"])
    sch = Schedule(func)
    sch.compute_inline("pad")
    sch.to_matmul("conv", (4, 8, 4), ("mk", "kn"))
    line = next(x for x in show(sch.func).splitlines() if "conv_a[vb, vm, vk] = " in x)
    assert line.count("select") == 1
    check(func, sch)


def test_a_consumer_reads_the_product() -> None:
    body = (
        GROUPS["padded"].replace("ROOT c", "c")
        + """
        z = f32[] constant(0)
        zero = f32[2,3,3,4] broadcast(z), dimensions={}
        ROOT r = f32[2,3,3,4] maximum(c, zero)"""
    )
    func = group(body)
    sch = Schedule(func)
    *_, out = sch.to_matmul("conv", (4, 8, 4), ("mk", "kn"))
    sch.compute_inline(out)
    check(func, sch)
    assert [b.name for b in sch.get_consumers("conv")] == ["out"]


def refused(text: str, *, multiples: Any = (1, 1, 1), layouts: Any = ("mk", "nk")) -> str:
    sch = Schedule(parse(text))
    before = sch.func
    with pytest.raises(ScheduleError) as caught:
        sch.to_matmul("C", multiples, layouts)
    assert sch.func is before
    assert not sch.trace.steps
    return str(caught.value)


def test_refusals_say_why() -> None:
    assert "not a sum of products" in refused(MATMUL.replace(" * ", " + "))
    assert "does not start from 0" in refused(MATMUL.replace("f32(0.0)", "f32(1.0)"))
    assert "does not start from 0" in refused(MATMUL.replace("f32(0.0)", "f32(-0.0)"))
    assert "three positive integers" in refused(MATMUL, multiples=(0, 1, 1))
    assert "three positive integers" in refused(MATMUL, multiples=(1, 1))
    assert "unknown layouts" in refused(MATMUL, layouts=("mk", "mn"))
    assert "elements" in refused(MATMUL.replace("9", str(2**50)), multiples=(2**20, 1, 1))


def test_a_placed_block_is_refused() -> None:
    sch = Schedule(parse(MATMUL))
    copy = sch.cache_read("C", 1, "global")
    sch.compute_at(copy, sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="under the same loops"):
        sch.to_matmul("C")
    sch = Schedule(parse(MATMUL))
    sch.parallel(sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="already parallel"):
        sch.to_matmul("C")
    sch = Schedule(parse(MATMUL))
    sch.decompose_reduction("C", sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="only updates"):
        sch.to_matmul("C")


def test_whole_tiles_are_computed_though_less_is_needed() -> None:
    func = parse(MATMUL)
    sch = Schedule(func)
    *_, out = sch.to_matmul("C", (8, 16, 8), ("mk", "kn"))
    i, _ = sch.get_loops(out)
    outer, _ = sch.split(i, [None, 8])
    sch.compute_at("C", outer, False, (1, 8, 16, 1))
    m, n, k = sch.get_loops("C")[1:]
    assert [sch.extent(x) for x in (m, n, k)] == [8, 16, 8]
    assert sch.block("C").predicate is None
    check(func, sch)
    sch = Schedule(func)
    *_, out = sch.to_matmul("C", (8, 16, 8), ("mk", "kn"))
    with pytest.raises(ScheduleError, match="4 positive multiples"):
        sch.compute_at("C", sch.get_loops(out)[0], False, (8, 16))
