"""Joins of blocks by the last one to arrive: simulated, thread by thread, and as PTX."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright import te
from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.errors import SimulationError
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.interp.races import UndefinedError
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule

SIMULATED = Target.parse("cuda-sim -arch=sm_80")
ROWS, DEPTH, PARTS = 5, 77, 3
X = np.random.default_rng(0).integers(-4, 5, (ROWS, DEPTH)).astype(np.float32)


def rows_in_parts(index: str = "blockIdx.y") -> Schedule:
    """Sums of rows, each by several blocks of threads, of which the last adds their parts."""
    a, k = te.placeholder((ROWS, DEPTH), "f32", "A"), te.reduce_axis(DEPTH, "k")
    s = te.compute((ROWS,), lambda i: te.sum(a[i, k], axis=k), name="S")
    sch = Schedule(te.create_func([a, s], name="rows"))
    row, depth = sch.get_loops("S")
    part, _ = sch.split(depth, [PARTS, None])
    sch.bind(row, "blockIdx.x")
    partial = sch.rfactor(part, 0)
    _, part, depth = sch.get_loops(partial)
    thread, _ = sch.split(depth, [32, None])
    sch.bind(part, index)
    sch.bind(thread, "threadIdx.x")
    return sch


FLAT = show(lower(rows_in_parts().func, SIMULATED))
FAULTS = {
    "no barrier": ('intrinsic("barrier")', "pass", "race on S_rf"),
    "too many": (f"args({PARTS})", f"args({PARTS + 1})", "no block of threads was the last one"),
    "too few": (f"args({PARTS})", f"args({PARTS - 1})", "S_rf"),
    "the wrong block": ("last[0] == s32(1)", "last[0] == s32(0)", "S_rf"),
    "late": (
        "if last[0] == s32(1):",
        f"if tx == 0:\n{' ' * 24}S_rf[by * 5 + bx] = f32(0)\n{' ' * 20}if last[0] == s32(1):",
        "race on S_rf",
    ),
}


def test_the_last_block_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 'arrivals = alloc(u32[5], scope="counter")' in FLAT
    kernel = Kernel(compile_flat(parse(FLAT), SIMULATED))
    for seed in range(4):
        monkeypatch.setenv(SEED, str(seed))
        np.testing.assert_array_equal(kernel(X.ravel()), X.sum(1))
        (found,) = run(parse(FLAT), [X.ravel()], seed=seed, check_races=True)
        np.testing.assert_array_equal(found, X.sum(1))


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_found(name: str) -> None:
    line, other, message = FAULTS[name]
    assert line in FLAT
    text = FLAT.replace(line, other)
    if name == "no barrier":  # and not the thread that counts the block has written its part
        text = text.replace(
            "if tx == 0:\n                            S_rf",
            "if tx == 1:\n                            S_rf",
        )
    with pytest.raises(SimulationError, match=message.replace("[", r"\[")):
        Kernel(compile_flat(parse(text), SIMULATED))(X.ravel())
    with pytest.raises(UndefinedError):
        run(parse(text), [X.ravel()], seed=0, check_races=True)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100a"])
def test_an_arrival_releases_and_acquires(arch: str) -> None:
    target = Target.parse(f"cuda -arch={arch}")
    code = nvptx.compile(emit(lower(rows_in_parts().func, target), target), target)
    assert code.count("atom.acq_rel.gpu.global.inc.u32") == 1
    assert f"nw_rows_arrivals_1[{4 * ROWS}];" in code  # zero when it is loaded
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    (usage,) = ptxas.assemble(code, arch).kernels.values()
    assert usage.spill_stores == usage.stack == 0


def test_parts_of_a_block_cannot_be_joined_by_another() -> None:
    sch = rows_in_parts()
    with pytest.raises(ScheduleError, match="shared memory, which every block of threads"):
        sch.set_scope("S_rf", 0, "shared")


def test_blocks_cannot_follow_others() -> None:
    sch = rows_in_parts()
    with pytest.raises(ScheduleError, match="is not alone in the launch"):
        sch.bind(sch.get_loops("S")[-1], "blockIdx.z")
