"""Launches of one function that need nothing of each other are one; others wait."""

from __future__ import annotations

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.lower.gpu.horizontal_fusion import join_launches
from nestwright.codegen.targets.registry import lower
from nestwright.ir.errors import SimulationError
from nestwright.ir.hlo import parse as parse_hlo
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.notes import BESIDE
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

SIM = Target.parse("cuda-sim -arch=sm_80")


@pytest.mark.parametrize(
    ("dim", "shapes"),
    [
        (0, [(5, 7), (1, 7), (3, 7)]),
        (1, [(9, 33), (9, 1)]),
        (1, [(2, 40, 8), (2, 0, 8), (2, 1, 8), (2, 3, 8)]),
        (2, [(3, 5, 4), (3, 5, 9)]),
    ],
)
def test_the_parts_of_a_concatenation_are_one_launch(
    dim: int, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(shapes[0])
    whole[dim] = sum(s[dim] for s in shapes)
    names = [f"f32[{','.join(map(str, s))}]" for s in (*shapes, whole)]
    lines = [f"  p{n} = {name} parameter({n})" for n, name in enumerate(names[:-1])]
    inputs = ", ".join(f"p{n}" for n in range(len(shapes)))
    root = f"  ROOT r = {names[-1]} concatenate({inputs}), dimensions={{{dim}}}"
    text = "\n".join(["HloModule parts", "ENTRY main {", *lines, root, "}"])
    code = nw.build(parse_hlo(text), target="cuda -arch=sm_90").bundle.kernels
    assert sum(len(c.launches) for c in code.values()) == 1
    exe = nw.build(parse_hlo(text), target=SIM)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    args[0].flat[3] = np.nan
    for seed in ("0", "5"):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", seed)
        np.testing.assert_array_equal(exe(*args), np.concatenate(args, dim))


TWO = """\
@func(outputs=2)
def two(A: f32[64], B: f32[96], C: f32[96]):
    for i in thread("blockIdx.x", 2):
        for x in thread("threadIdx.x", 32):
            with block("B"):
                vi = spatial(64, i * 32 + x)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] + A[vi]
    for j in thread("blockIdx.x", 1):
        for y in thread("threadIdx.x", 32):
            with block("later"):
                vj = spatial(32, y)
                reads({source}[vj])
                writes(B[vj + {start}])
                B[vj + {start}] = {source}[vj] * {source}[vj]
    for k in thread("blockIdx.x", 3):
        for z in thread("threadIdx.x", 32):
            with block("C"):
                vk = spatial(96, k * 32 + z)
                reads(B[vk])
                writes(C[vk])
                C[vk] = B[vk]
"""


def two(source: str, start: int) -> Func:
    func = parse(TWO.format(source=source, start=start))
    verify(func)
    return func


def test_writes_behind_each_other_share_a_launch_and_their_reader_waits() -> None:
    flat = lower(two("A", 64), SIM)
    verify(flat)
    assert [x.grid[0] for x in launches(flat)] == [3, 3]
    a = np.arange(64, dtype=np.float32)
    b, c = Kernel(compile_flat(flat, SIM))(a)
    np.testing.assert_array_equal(b, np.concatenate([a + a, a[:32] * a[:32]]))
    np.testing.assert_array_equal(c, b)


@pytest.mark.parametrize(("source", "start"), [("A", 63), ("A", 32), ("B", 64)])
def test_what_meets_stays_in_order(source: str, start: int) -> None:
    """Elements written twice, and values of the launch before."""
    assert len(launches(lower(two(source, start), SIM))) == 3


def test_a_wrong_note_is_a_race_that_the_simulation_finds() -> None:
    """Both launches write element 63: in one launch nothing orders them."""
    flat = lower(two("A", 63), SIM)
    wrong = join_launches(BESIDE.put(flat, (0, 0, 2)), SIM)
    assert len(launches(wrong)) == 2
    with pytest.raises(SimulationError, match="race on B"):
        Kernel(compile_flat(wrong, SIM))(np.arange(64, dtype=np.float32))


def test_threads_of_another_shape_leave_a_line_of_threads_alone() -> None:
    """Of a joint block of 32 x 4 threads, the first line does what had 32 x 1."""
    text = """\
@func(outputs=2)
def lines(A: f32[64], B: f32[64], C: f32[128]):
    for i in thread("blockIdx.x", 2):
        for x in thread("threadIdx.x", 32):
            with block("B"):
                vi = spatial(64, i * 32 + x)
                reads(A[vi])
                writes(B[vi])
                B[vi] = A[vi] + A[vi]
    for j in thread("blockIdx.x", 1):
        for w in thread("threadIdx.y", 4):
            for y in thread("threadIdx.x", 32):
                with block("C"):
                    vj = spatial(128, w * 32 + y)
                    reads(A[vj % 64])
                    writes(C[vj])
                    C[vj] = A[vj % 64]
"""
    func = parse(text)
    verify(func)
    flat = lower(func, SIM)
    (launch,) = launches(flat)
    assert (launch.grid, launch.block) == ((3, 1, 1), (32, 4, 1))
    a = np.arange(64, dtype=np.float32)
    b, c = Kernel(compile_flat(flat, SIM))(a)
    np.testing.assert_array_equal(b, a + a)
    np.testing.assert_array_equal(c, np.tile(a, 2))


def test_launches_with_intrinsics_wait_for_what_they_read() -> None:
    """Parts of a depth that tensor cores make, and their sum."""
    text = """HloModule m
ENTRY main {
  x = f16[64,256] parameter(0)
  w = f16[256,64] parameter(1)
  ROOT r = f16[64,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    (group,) = fuse(optimize(parse_hlo(text)).entry).groups
    func = lower_group(group.computation, "main")
    sketch = next(s for s in generate(func, SIM) if s.name == "gpu_mma@1")
    for join, number in (("launch", 2), ("last", 1)):
        sch = Schedule(func)
        sketch.apply(sch, {**sketch.default, "split": 2, "join": join})
        assert len(launches(lower(sch.func, SIM))) == number
