"""What a kernel reads without anybody having written it there shows, wherever its buffers are."""

from __future__ import annotations

from string import Template

import numpy as np
import pytest

from nestwright.autotune.measure.check import HUGE, NAN, Wrong, check
from nestwright.autotune.measure.processor import CpuMachine, NativeRun
from nestwright.autotune.measure.reference import Reference, make_reference
from nestwright.autotune.tasks.programs import Program
from nestwright.ir.loop.parser import parse
from nestwright.ir.target import Target

FUNC = Template("""@func(outputs=1)
def kernel(p0: f32[6, $n], out: f32[6, $n]):
    for i in $loop(6):
        t = alloc(f32[$n]$scope)
        for j in range($written):
            t[j] = p0[i, j]
        for k in range($n):
            out[i, k] = max(t[k], min(t[k], t[$read]))
""")
MEMORY = {
    "a register tile on the caller's stack": ("range", 600, ', scope="register"'),
    "the stack of whichever thread runs a body": ("parallel", 13, ""),
    "cache lines filled to the last byte": ("parallel", 16, ""),
    "a thread's scratch memory": ("parallel", 3000, ""),
    "scratch memory filled to the last byte": ("parallel", 4096, ""),
}
FAULTS = {"right": (0, "k"), "behind the end": (0, "k + 1"), "before the start": (0, "k - 1")}
FAULTS["never written"] = (1, "k")


@pytest.fixture(autouse=True)
def unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let faults through that the rules of lowering's stages would name before they run."""
    monkeypatch.delenv("NESTWRIGHT_VERIFY")


def run_of(memory: str, threads: int, fault: str) -> tuple[NativeRun, Reference]:
    """A kernel with a fault, and what the right one computes."""
    target = Target.parse(f"cpu -threads={threads}")
    loop, n, scope = MEMORY[memory]

    def text(kind: str) -> str:
        less, read = FAULTS[kind]
        return FUNC.substitute(loop=loop, n=n, scope=scope, written=n - less, read=read)

    program = Program("loop", text("right"))
    reference = Reference(program.outputs, tuple(c for c, _ in make_reference(program, target, 0)))
    machine = CpuMachine(program, reference.ordinary.arguments, target)
    return machine.compile(parse(text(fault))), reference


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("memory", MEMORY)
def test_what_nobody_wrote_shows(memory: str, threads: int) -> None:
    for fault in FAULTS:
        run, reference = run_of(memory, threads, fault)
        if fault == "right":
            assert check(run, reference, lambda doing: None) == 0.0
        else:
            with pytest.raises(Wrong, match="nan instead of"):
                check(run, reference, lambda doing: None)


@pytest.mark.parametrize("memory", MEMORY)
def test_the_two_runs_find_different_bytes(memory: str) -> None:
    run, reference = run_of(memory, 2, "never written")
    arguments, huge = reference.ordinary.arguments, np.frombuffer(bytes([HUGE] * 4), np.float32)[0]
    assert np.isnan(run.trial(arguments, NAN, True).results[0][:, -1]).all()
    assert (run.trial(arguments, HUGE, False).results[0][:, -1] == huge).all()


@pytest.mark.parametrize("place", ["3008", "3023", "-1", "-8"])
def test_writes_beside_scratch_memory_are_found(place: str) -> None:
    """As the last statement of the body, in no other buffer: 3,008 floats are whole cache lines."""
    text = FUNC.substitute(loop="parallel", n=3000, scope="", written=3000, read="k")
    program = Program("loop", text)
    target = Target.parse("cpu -threads=2")
    case = make_reference(program, target, 0)[0][0]
    machine = CpuMachine(program, case.arguments, target)
    run = machine.compile(parse(text + f"        t[{place}] = f32(1.0)\n"))
    assert "outside its scratch memory" in run.trial(case.arguments, NAN, True).damage
    right = machine.compile(parse(text + "        t[0] = f32(1.0)\n"))
    assert right.trial(case.arguments, NAN, True).damage == ""
