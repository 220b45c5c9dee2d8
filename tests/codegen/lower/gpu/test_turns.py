"""Loops over blocks of which each does several iterations in turn: any number gives the same."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.codegen.targets.registry import lower
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

SIM = Target.parse("cuda-sim -arch=sm_90")


def mirrored(rows: int, note: str) -> Func:
    """Rows turned around by way of shared memory, a block for each."""
    return parse(f"""
@func(outputs=1)
def mirrored(A: f32[{rows}, 40], B: f32[{rows}, 40]):
    T = alloc(f32[{rows}, 40], scope="shared")
    for i in thread("blockIdx.x", {rows}, {note}):
        for j in thread("threadIdx.x", 40):
            with block("T"):
                vi, vj = spatial({rows}, i), spatial(40, j)
                reads(A[vi, vj])
                writes(T[vi, vj])
                T[vi, vj] = A[vi, vj]
        for j in thread("threadIdx.x", 40):
            with block("B"):
                vi, vj = spatial({rows}, i), spatial(40, j)
                reads(T[vi, 39 - vj])
                writes(B[vi, vj])
                B[vi, vj] = T[vi, 39 - vj] + f32(1)
""")


@pytest.mark.parametrize(
    ("rows", "turns", "blocks"), [(1, 2, 1), (6, 3, 2), (7, 3, 3), (7, 1, 7), (9, 8, 2), (5, 9, 1)]
)
def test_blocks_do_several_iterations(
    rows: int, turns: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many for each, but for the last blocks, and no two of them at the same place at once."""
    flat = lower(mirrored(rows, f"in_turn={turns}"), SIM)
    verify(flat)
    (launch,) = launches(flat)
    assert launch.grid == (blocks, 1, 1)
    x = np.random.default_rng(rows).standard_normal((rows, 40)).astype(np.float32)
    wanted = (x[:, ::-1] + 1).ravel()
    kernel = Kernel(compile_flat(flat, SIM))
    for seed in range(2):
        monkeypatch.setenv(SEED, str(seed))
        np.testing.assert_array_equal(kernel(x.ravel()), wanted)
        (found,) = run(flat, [x.ravel()], seed=seed, check_races=True)
        np.testing.assert_array_equal(found, wanted)


def test_one_note_decides_how_many() -> None:
    with pytest.raises(UnsupportedError, match="`in_turn` for a launch with `resident`"):
        lower(mirrored(7, "in_turn=2, resident=1"), SIM)
