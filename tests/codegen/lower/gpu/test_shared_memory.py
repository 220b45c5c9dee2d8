"""Shared memory of a launch: its buffers and what its reductions take, counted together."""

from __future__ import annotations

import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.emit.launches import launches, nests
from nestwright.codegen.lower.gpu.limits import (
    check_limits,
    reduction_bytes,
    shared_alignment,
)
from nestwright.codegen.plan.code.device import DeviceCode
from nestwright.codegen.plan.groups import fuse_module
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import SHARED_ALIGN, Func
from nestwright.ir.loop.parser import parse as parse_loops
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import default_schedule, generate
from nestwright.te.from_hlo import lower_group

SOFTMAX = """HloModule softmax
max {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }}
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY main {{
  x = f32[265,{n}] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[265] reduce(x, low), dimensions={{1}}, to_apply=max
  mb = f32[265,{n}] broadcast(m), dimensions={{0}}
  d = f32[265,{n}] subtract(x, mb)
  e = f32[265,{n}] exponential(d)
  s = f32[265] reduce(e, zero), dimensions={{1}}, to_apply=add
  sb = f32[265,{n}] broadcast(s), dimensions={{0}}
  ROOT r = f32[265,{n}] divide(e, sb)
}}
"""


def function(n: int) -> Func:
    (group,) = fuse_module(optimize(parse(SOFTMAX.format(n=n)))).distinct.values()
    return lower_group(group.computation, "k")


def totals(func: Func, target: Target) -> list[tuple[int, int]]:
    """Of each launch the bytes of its buffers, and of its reductions."""
    flat = lower(func, target)
    pairs = zip(launches(flat), nests(flat), strict=True)
    return [(x.shared_bytes, reduction_bytes(n.body, n.threads)) for x, n in pairs]


@pytest.mark.parametrize(
    ("arch", "n"),
    [("sm_90", 58112), ("sm_90", 58080), ("sm_86", 25344), ("sm_75", 16384), ("sm_75", 16368)],
)
def test_default_schedules_leave_room_for_their_reductions(arch: str, n: int) -> None:
    target = Target.parse(f"cuda -arch={arch}")
    for own, met in totals(default_schedule(function(n), target).func, target):
        assert own + met <= target.gpu.shared_per_block


@pytest.mark.skipif(ptxas.find() is None, reason="no ptxas here")
def test_the_count_is_that_of_the_assembler() -> None:
    target, func = Target.parse("cuda -arch=sm_90"), function(12272)
    (rows,) = [s for s in generate(func, target) if s.name.startswith("gpu_rows")]
    sch = Schedule(func)
    rows.apply(sch, {**rows.default, "keep": 0})  # the row between stages is in shared memory
    flat = lower(sch.func, target)
    usage = ptxas.assemble(nvptx.compile(emit(flat, target), target), target.cpu).kernels
    (launch,), (nest,) = launches(flat), nests(flat)
    met = reduction_bytes(nest.body, nest.threads)
    assert launch.shared_bytes == 48 << 10 and usage[launch.symbol].shared == met > 0


BESIDE = """
@func(outputs=1)
def beside(A: f32[64], X: f32[{count}], Y: f32[{count}]):
    for t in thread("threadIdx.x", 64):
        S = alloc(f32[{count}], scope="shared")
        R = alloc(f32[1], scope="register")
        S[t] = X[t]
        R[0] = S[t]
        all_reduce(64, R, lambda a, b: a + b)
        Y[t] = R[0]
    for u in thread("threadIdx.x", 64):
        B = alloc(f32[64], scope="shared")
        bar = alloc(u64[1], scope="shared")
        place = alloc(s32[2], scope="register")
        place[0] = s32(0)
        place[1] = s32(0)
        if u == 0:
            intrinsic("mbarrier_init", writes(bar[0]), args(1))
            intrinsic("fence_mbarrier_init")
            intrinsic("mbarrier_expect", writes(bar[0]), args(256))
            intrinsic("tma_load", writes(B[0 : 64]), reads(A[0 : 64], place[0 : 2], bar[0]), \
args(8, 8, 8, 8, 8, 32))
"""


def test_reductions_beside_boxes_take_a_whole_pattern() -> None:
    """One alignment is that of all launches of a module, as the assembler has it."""
    target = Target.parse("cuda -arch=sm_90a")
    flat = parse_loops(BESIDE.format(count=64))
    align = shared_alignment(flat.body)
    found = [reduction_bytes(n.body, n.threads, align) for n in nests(flat)]
    assert (align, found) == (1024, [1024, 0])
    most = target.gpu.shared_per_block // 4
    check_limits(parse_loops(BESIDE.format(count=most - 256)), target)
    with pytest.raises(UnsupportedError, match="bytes of shared memory"):
        check_limits(parse_loops(BESIDE.format(count=most - 256 + SHARED_ALIGN // 4)), target)
    if ptxas.find() is None:
        pytest.skip("no ptxas here")
    usage = ptxas.assemble(nvptx.compile(emit(flat, target), target), target.cpu).kernels
    assert [usage[x.symbol].shared for x in launches(flat)] == found


def test_what_cannot_fit_is_refused_with_the_functions_name() -> None:
    """A row that fills shared memory, and more than one warp to share it."""
    target, func = Target.parse("cuda -arch=sm_90"), function(58112)
    (rows,) = [s for s in generate(func, target) if s.name.startswith("gpu_rows")]
    choices = dict(rows.default) | {"threads": 512, "rows": 1, "vector": 4, "keep": 0}
    assert not rows.valid(choices)
    schedule = Schedule(func)
    rows.apply(schedule, choices)
    with pytest.raises(UnsupportedError, match=r"function k: a launch asks for 232576 bytes of"):
        lower(schedule.func, target)


def test_a_model_at_the_limit_builds() -> None:
    exe = build(parse(SOFTMAX.format(n=58112)), "cuda -arch=sm_90")
    (code,) = exe.bundle.kernels.values()
    assert isinstance(code, DeviceCode) and code.launches
