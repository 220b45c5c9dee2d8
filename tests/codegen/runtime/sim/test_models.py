"""Models on a simulated GPU: built by default, run, saved, and ended when one goes wrong."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import nestwright as nw
from nestwright.codegen.plan.symbols import SIMULATION_FAILED
from nestwright.codegen.runtime.native import Native
from nestwright.codegen.runtime.sim.executable import Simulated
from nestwright.codegen.runtime.sim.structs import FaultKind
from nestwright.codegen.targets.cpu.program import module_text
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.target import Target

TARGET = "cuda-sim -arch=sm_80"
EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.mark.parametrize("name", ["dense_relu", "softmax"])
def test_an_example_is_right(name: str) -> None:
    exe = nw.build(EXAMPLES / f"{name}.hlo", target=TARGET)
    args = exe.random_arguments(3)
    expected = evaluate(exe.module, args)
    np.testing.assert_allclose(exe(*args), expected, rtol=2e-5, atol=2e-5)


def test_a_network_gives_its_stored_results_and_can_be_saved(tmp_path: Path) -> None:
    exe = nw.build(EXAMPLES / "convnet.hlo", target=TARGET)
    with np.load(EXAMPLES / "convnet.npz") as stored:
        args = [stored[name] for name in stored.files]
    with np.load(EXAMPLES / "convnet.expected.npz") as stored:
        (expected,) = (stored[name] for name in stored.files)
    out = exe(*args)
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-5)
    exe.save(tmp_path / "convnet.nw")
    np.testing.assert_array_equal(nw.load(tmp_path / "convnet.nw")(*args), out)


def test_targets_say_whether_accesses_are_checked() -> None:
    assert Target.parse(TARGET).check
    unchecked = Target.parse(f"{TARGET} -check=0")
    assert not unchecked.check
    assert Target.parse(unchecked.spec) == unchecked


COUNT = """
HloModule count
body {
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[8] get-tuple-element(t), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[8] add(x, x)
  ROOT r = (s32[], f32[8]) tuple(n, y)
}
test {
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  m = s32[] constant(5)
  ROOT c = pred[] compare(i, m), direction=LT
}
ENTRY main {
  x = f32[8] parameter(0)
  z = s32[] constant(0)
  s = (s32[], f32[8]) tuple(z, x)
  w = (s32[], f32[8]) while(s), condition=test, body=body
  ROOT r = f32[8] get-tuple-element(w), index=1
}
"""


def test_a_fault_ends_a_loop(tmp_path: Path) -> None:
    path = tmp_path / "count.hlo"
    path.write_text(COUNT)
    exe = nw.build(path, target=TARGET)
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(exe(x), 32 * x)
    native = Simulated(exe.bundle)
    assert SIMULATION_FAILED in module_text(exe.plan, b"", Target.parse("cpu"), SIMULATION_FAILED)
    _fail(native)
    out = np.zeros(8, np.float32)
    Native.run_at(
        native, [x.ctypes.data], [out.ctypes.data]
    )  # no kernel runs, and yet it comes back


def _fail(native: Simulated) -> None:
    address = ctypes.CFUNCTYPE(ctypes.c_void_p)(native.library.address("nw_sim_report"))()
    assert address is not None
    ctypes.c_int64.from_address(address).value = FaultKind.RACE
