"""The caches before a timed call: what passes through them, and how the call is timed."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from nestwright.autotune.measure.memory.cache_state import (
    EVICTING,
    CacheState,
    Passing,
    cold_bytes,
    module_text,
    passing,
    room_for,
)
from nestwright.autotune.measure.processor import CpuMachine
from nestwright.autotune.tasks.extract import extract
from nestwright.autotune.tasks.programs import Program
from nestwright.autotune.tuner.floor import HOT, least_seconds
from nestwright.codegen.targets.cpu import toolchain as cpu
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import default_schedule

TARGET = Target.parse("cpu -mcpu=skylake-avx512 -threads=2")
CACHES = EVICTING * TARGET.l2 * 2
HUGE = float(1 << 40)
MIB = float(1 << 20)


def test_a_model_of_one_group_finds_its_own_data() -> None:
    assert passing([100, 200, 50], 2, (350.0, 350.0, 350.0, 350.0), TARGET) == ()


def test_weights_of_a_large_model_are_in_no_cache_and_those_of_a_small_one_in_l3() -> None:
    large = passing([1 << 20, 1 << 20], 1, (HUGE, 0.0, HUGE), TARGET)
    assert large[:2] == (Passing("flush", 1 << 20, 0), Passing("code"))
    run = 2.0 * CACHES
    small = passing([1 << 20, 1 << 20], 1, (run, 0.0, run), TARGET)
    assert [s.kind for s in small] == ["code", "pass", "write"]
    assert small[1].bytes == CACHES - (1 << 20)


def test_what_others_made_is_written_in_the_order_and_at_the_distances_of_the_model() -> None:
    sizes, run = [1 << 20, 1 << 18, 1 << 18, 1 << 16], 64 * MIB
    steps = passing(sizes, 3, (run, 0.0, 4 * MIB, 0.0, run), TARGET)
    order = [(s.kind, s.buffer) for s in steps if s.kind not in ("code", "flush")]
    assert order == [("pass", -1), ("write", 2), ("pass", -1), ("write", 3), ("write", 1)]
    since = [s.bytes for s in steps[[s.buffer for s in steps].index(2) + 1 :]]
    assert sum(since) - sizes[1] == 4 * MIB, "what passes after it, with the output before"


def test_without_a_model_small_data_is_hot_and_large_data_is_not() -> None:
    assert passing([64, 64], 1, (), TARGET) == ()
    assert passing([1 << 22, 1 << 22], 1, (), TARGET) == (Passing("pass", CACHES),)


def test_hot_operands_would_exceed_the_bandwidth_and_are_refused() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[512,4096] parameter(0)
  w = f32[4096,4096] parameter(1)
  v = f32[4096,512] parameter(2)
  a = f32[512,4096] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT b = f32[512,512] dot(a, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    tasks = extract(optimize(parse(text)), TARGET)
    first = next(t for t in tasks if t.flops == 2 * 512 * 4096 * 4096)
    sizes, read = [4 * 512 * 4096, 4 * 4096 * 4096, 4 * 512 * 4096], (True, True)
    cold = cold_bytes(sizes, first.reuse, read, TARGET)
    assert cold == sizes[0] + sizes[1], "an argument and a weight, both a run ago"
    assert least_seconds(first, 0.0, 1e9, TARGET) == pytest.approx(cold / (HOT * 1e9))
    assert least_seconds(first, 1.0, 1e9, TARGET) == first.certain, "the larger bound counts"
    assert least_seconds(first, 0.0, 0.0, TARGET) == 0
    assert cold_bytes([64, 64, 64], (192.0, 192.0, 0.0, 192.0), read, TARGET) == 0


def test_no_byte_changes_in_a_buffer_or_around_it() -> None:
    host = Target.parse("cpu")
    memory = np.arange(4096, dtype=np.uint8)
    before = memory.copy()
    start = memory.ctypes.data + 64
    steps = (
        Passing("flush", 1000, 0),
        Passing("code"),
        Passing("pass", 1 << 16),
        Passing("write", 1000, 0),
        Passing("write", 3, 0),
    )
    calls: list[int] = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    function = kind(lambda a, b: calls.append(a or 0))
    state = CacheState(steps, room_for(steps), [start], host)
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    assert state.seconds(address, (start, 0)) > 0
    assert calls == [start]
    assert np.array_equal(memory, before)


PROGRAM = """HloModule canonical
ENTRY main {
  p0 = f32[24,32] parameter(0)
  p1 = f32[32,40] parameter(1)
  ROOT v0 = f32[24,40] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("run", [0.0, 1e5, HUGE])
def test_calls_on_prepared_caches_compute_the_same_and_count_their_own_time(
    threads: int, run: float
) -> None:
    target, program = Target.parse(f"cpu -threads={threads}"), Program("hlo", PROGRAM)
    arguments = program.arguments(0)
    reuse = (run / 2, run, 0.0, run) if run else ()
    machine = CpuMachine(program, arguments, target, reuse)
    made = machine.compile(default_schedule(program.func, target).func)
    assert (machine.sample == 0) == (run > 0)
    began = machine.clock()
    made.call(3)
    assert machine.clock() > began
    (want,) = program.expect(arguments)
    assert np.allclose(machine.buffers[2], want, rtol=1e-4, atol=1e-4)
    assert made.again(0xFF).damage == ""


def test_it_compiles_for_a_processor_with_shorter_vectors() -> None:
    target = Target.parse("cpu -mcpu=haswell")
    assert "<8 x i32>" in module_text(target)
    assert cpu.compile(module_text(target), target)


def test_where_lines_cannot_be_flushed_the_module_has_no_such_instruction() -> None:
    text = module_text(Target.parse("llvm -mtriple=aarch64-linux-gnu"))
    assert "clflush" not in text and "jmp" not in text
