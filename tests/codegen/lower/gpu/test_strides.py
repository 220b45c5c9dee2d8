"""Loops over blocks that run in as many blocks as the device holds: any number gives the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright import te
from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.emit.launches import launches
from nestwright.codegen.plan.code.device import DeviceCode
from nestwright.codegen.plan.code.form import code_pieces
from nestwright.codegen.plan.code.reader import DEVICE
from nestwright.codegen.runtime.sim.process import SEED
from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.errors import ArtifactError, SimulationError, UnsupportedError
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.interp.races import UndefinedError
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate

SIM = Target.parse("cuda-sim -arch=sm_90")
COLUMNS = 7


def mirrored(rows: int, note: str = ", resident=1", index: str = "blockIdx.x") -> str:
    """Rows turned around by way of shared memory, a block for each."""
    return f"""
@func(outputs=1)
def mirrored(A: f32[{rows}, 7], B: f32[{rows}, 7]):
    T = alloc(f32[{rows}, 7], scope="shared")
    for i in thread("{index}", {rows}{note}):
        for j in thread("threadIdx.x", 7):
            with block("T"):
                vi, vj = spatial({rows}, i), spatial(7, j)
                reads(A[vi, vj])
                writes(T[vi, vj])
                T[vi, vj] = A[vi, vj]
        for j in thread("threadIdx.x", 7):
            with block("B"):
                vi, vj = spatial({rows}, i), spatial(7, j)
                reads(T[vi, 6 - vj])
                writes(B[vi, vj])
                B[vi, vj] = T[vi, 6 - vj] + f32(1)
"""


def lowered(rows: int) -> str:
    flat = lower(parse(mirrored(rows)), SIM)
    verify(flat)
    return show(flat)


def arrays(rows: int) -> tuple[Any, Any]:
    x = np.random.default_rng(rows).standard_normal((rows, COLUMNS)).astype(np.float32)
    return x.ravel(), (x[:, ::-1] + 1).ravel()


@pytest.mark.parametrize("rows", [1, 133, 300])
def test_any_number_of_blocks_gives_the_same(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    flat, (x, wanted) = parse(lowered(rows)), arrays(rows)
    (launch,) = launches(flat)
    assert launch.grid == (rows, 1, 1)
    assert [launch.on(n) for n in (1, 132, 512)] == [(min(rows, n), 1, 1) for n in (1, 132, 512)]
    kernel = Kernel(compile_flat(flat, SIM))
    for seed in range(3):
        monkeypatch.setenv(SEED, str(seed))
        np.testing.assert_array_equal(kernel(x), wanted)
        if rows < 200:
            (found,) = run(flat, [x], seed=seed, check_races=True)
            np.testing.assert_array_equal(found, wanted)


FAULTS = {
    "no barrier between turns": ('                intrinsic("barrier")\n', "", "race on T"),
    "turns that overlap": ("turn * every + bx", "turn + bx", "race on B|never written"),
    "too few turns": ("(every + 299 - bx) //", "(299 - bx) //", ""),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_found(name: str) -> None:
    old, new, message = FAULTS[name]
    text, (x, wanted) = lowered(300), arrays(300)
    assert old in text
    at = text.rindex(old)
    wrong = parse(text[:at] + new + text[at + len(old) :])
    if not message:
        assert not np.array_equal(Kernel(compile_flat(wrong, SIM))(x), wanted)
        return
    with pytest.raises(SimulationError, match=message):
        Kernel(compile_flat(wrong, SIM))(x)
    with pytest.raises(UndefinedError):
        run(wrong, [x], seed=1, check_races=True)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_a_block_asks_for_the_number_of_blocks(arch: str) -> None:
    target = Target.parse(f"cuda -arch={arch}")
    code = nvptx.compile(emit(lower(parse(mirrored(300)), target), target), target)
    assert code.count("%nctaid.x") == 1
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    (usage,) = ptxas.assemble(code, arch).kernels.values()
    assert usage.spill_stores == usage.stack == 0


def test_loops_over_other_blocks_are_refused() -> None:
    head, loop, body = mirrored(6, "", "blockIdx.y").partition("    for i in")
    inner = "".join(f"    {line}\n" for line in (loop + body).splitlines())
    text = f'{head}    for one in thread("blockIdx.x", 1, resident=1):\n{inner}'
    with pytest.raises(UnsupportedError, match="counts blocks of"):
        lower(parse(text), SIM)


def test_a_saved_launch_says_how_many_blocks() -> None:
    flat = parse(lowered(300))
    pieces = code_pieces(DeviceCode("", launches(flat)))
    code = DEVICE.join(pieces, SIM)
    assert isinstance(code, DeviceCode) and code.launches == launches(flat)
    for bad in (b"33]", b"-1]", b'"2"]', b"1, 2]"):
        with pytest.raises(ArtifactError):
            DEVICE.join({**pieces, "json": pieces["json"].replace(b"1]]", bad + b"]", 1)}, SIM)


@pytest.mark.parametrize("multiprocessors", [114, 132, 160])
def test_the_device_is_asked_when_the_model_is_loaded(fake: Any, multiprocessors: int) -> None:
    fake.multiprocessors = multiprocessors
    exe = fake.executable(ADD, grid=(300, 1, 1), block=(64, 1, 1), resident=2)
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(exe(x, x), 2 * x)
    shapes = [shape for symbol, shape, _ in fake.launched if symbol.startswith("nw_")]
    assert [s[:3] for s in shapes] == [(min(300, 2 * multiprocessors), 1, 1)]


def test_a_sketch_may_ask_the_device() -> None:
    a = te.placeholder((1 << 22,), "f32", "A")
    func = te.create_func([a, te.compute((1 << 22,), lambda i: a[i] + 1.0, name="B")], name="add")
    sketch = next(s for s in generate(func, SIM) if "at_once" in s.decisions)
    assert sketch.default["at_once"] == 0
    for resident in sketch.decisions["at_once"]:
        sch = Schedule(func)
        sketch.apply(sch, {**sketch.default, "at_once": resident})
        (launch,) = launches(lower(sch.func, SIM))
        assert launch.resident == resident


ADD = """HloModule add
ENTRY main {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  ROOT z = f32[64] add(x, y)
}
"""
