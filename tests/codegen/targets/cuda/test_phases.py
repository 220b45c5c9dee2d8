"""Barriers with phases as machine code: they assemble on each generation that has them."""

from __future__ import annotations

import pytest

from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

TEXT = """
@func(outputs=1)
def passed(X: f32[32], Y: f32[32]):
    for t in thread("threadIdx.x", 64):
        S = alloc(f32[32], scope="shared")
        bar = alloc(u64[2], scope="shared")
        p = alloc(s32[1], scope="register")
        if t == 0:
            intrinsic("mbarrier_init", writes(bar[1]), args(32))
        intrinsic("barrier")
        if t < 32:
            intrinsic("copy_async", writes(S[t]), reads(X[t]), args(4))
            intrinsic("mbarrier_arrive_copies", writes(bar[1]))
            intrinsic("mbarrier_arrive", writes(bar[0]))
            intrinsic("named_barrier_arrive", args(3, 64))
        else:
            p[0] = s32(0)
            intrinsic("mbarrier_wait", reads(bar[1], p[0]))
            intrinsic("named_barrier", args(3, 64))
            Y[t - 32] = S[63 - t]
"""


@pytest.mark.parametrize(
    ("arch", "wait"), [("sm_80", "test_wait"), ("sm_90a", "try_wait"), ("sm_100a", "try_wait")]
)
def test_barriers_assemble(arch: str, wait: str) -> None:
    target, func = Target.parse(f"cuda -arch={arch}"), parse(TEXT)
    verify(func)
    ptx = nvptx.compile(emit(func, target), target)
    for word in (
        "mbarrier.init.shared.b64",
        f"mbarrier.{wait}.parity",
        "cp.async.mbarrier.arrive.noinc",
        "bar.arrive 3, 64",
        "bar.sync 3, 64",
    ):
        assert word in ptx
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    assert ptxas.assemble(ptx, target.cpu).kernels["passed"].stack == 0
