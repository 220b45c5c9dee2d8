"""Launches that begin while the ones before them end: the wait, what is refused, what is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.errors import TargetError, VerifyError
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.target import Target

SIM = Target.parse("cuda-sim -arch=sm_90 -overlap=1")
TWO = """
@func(outputs=1)
def two(A: f32[70], B: f32[70]):
    T = alloc(f32[70])
    for i in thread("threadIdx.x", 70):
        with block("T"):
            vi = spatial(70, i)
            reads(A[vi])
            writes(T[vi])
            T[vi] = A[vi] + f32(1)
    for i in thread("threadIdx.x", 70):
        with block("B"):
            vi = spatial(70, i)
            reads(T[69 - vi])
            writes(B[vi])
            B[vi] = T[69 - vi]
"""
FLAT = show(lower(parse(TWO), SIM))
WAIT, NEXT = 'intrinsic("launch_wait")', 'intrinsic("launch_next")'


def test_each_launch_waits_before_it_touches_memory() -> None:
    assert [x.overlaps for x in launches(parse(FLAT))] == [True, True]
    plain = lower(parse(TWO), Target.parse("cuda-sim -arch=sm_90"))
    assert [x.overlaps for x in launches(plain)] == [False, False]
    x = np.arange(70, dtype=np.float32)
    np.testing.assert_array_equal(Kernel(compile_flat(parse(FLAT), SIM))(x), x[::-1] + 1)


WRONG = {
    "after an access": FLAT.replace(f"{WAIT}\n", "B[tx] = A[tx]\n            " + f"{WAIT}\n"),
    "after the next one may begin": FLAT.replace(WAIT, "%").replace(NEXT, WAIT).replace("%", NEXT),
    "by some threads": FLAT.replace(WAIT, f"if tx < 3:\n                {WAIT}"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wait_that_is_missing_is_found(name: str) -> None:
    wrong = parse(WRONG[name])
    with pytest.raises(VerifyError, match=r"before it waits|waits for earlier ones under"):
        launches(wrong)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_no_load_passes_the_wait(arch: str) -> None:
    target = Target.parse(f"cuda -arch={arch} -overlap=1")
    code = nvptx.compile(emit(lower(parse(TWO), target), target), target)
    for kernel in code.split(".visible .entry")[1:]:
        before, wait, after = kernel.partition("griddepcontrol.wait;")
        assert wait and "ld.global" not in before and "st.global" not in before
        assert "griddepcontrol.launch_dependents;" in after
    assert ".nc." not in code  # what is read is written while the kernel has begun
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    for usage in ptxas.assemble(code, arch).kernels.values():
        assert usage.spill_stores == usage.stack == 0


def test_older_gpus_refuse() -> None:
    with pytest.raises(TargetError, match="launches of sm_80 do not overlap"):
        Target.parse("cuda -arch=sm_80 -overlap=1")


CHAIN = """HloModule chain
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[32,48] parameter(0)
  w = f32[48,16] parameter(1)
  d = f32[32,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[32,16] tanh(d)
  zero = f32[] constant(0)
  ROOT s = f32[32] reduce(e, zero), dimensions={1}, to_apply=add
}
"""


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_launch_behind_a_launch_is_made_early(fake: Any, overlaps: bool) -> None:
    exe = fake.executable(CHAIN, overlaps=overlaps)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype(np.float32) for s in ((32, 48), (48, 16))]
    wanted = np.tanh(args[0] @ args[1]).sum(1)
    for _ in range(3):  # one by one, recorded, replayed
        np.testing.assert_allclose(exe(*args), wanted, rtol=1e-4, atol=1e-4)
    made = [x for x in fake.launched if x[0].startswith("nw_")]
    early = fake.count()["cuLaunchKernelEx"]
    assert len(made) > 2 and early == (len(made) - 2 if overlaps else 0), "the first of a run waits"
