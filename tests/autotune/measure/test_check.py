"""Faults that a check has to find: each on a real kernel whose own memory is spoiled behind it."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nestwright.autotune.log.records import DEFAULT_SKETCH
from nestwright.autotune.measure.candidates import make_schedule
from nestwright.autotune.measure.check import Wrong, check, check_again
from nestwright.autotune.measure.memory.guarded import PAGE, GuardedMemory
from nestwright.autotune.measure.memory.poison import poisoned
from nestwright.autotune.measure.processor import CpuMachine, NativeRun
from nestwright.autotune.measure.protocol import Candidate
from nestwright.autotune.measure.reference import (
    Reference,
    ReferenceCase,
    _wanted,
    judge,
    load_reference,
    make_reference,
)
from nestwright.autotune.tasks.programs import Program
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.ir.dtypes import bf16, f16, to_numpy
from nestwright.ir.hlo.bounds.bounded import Bounded
from nestwright.ir.loop.nodes import Buffer
from nestwright.ir.loop.printer import show
from nestwright.ir.target import Target
from nestwright.schedule.sketches.generate import default_schedule

TARGET = Target.parse("cpu -threads=1")


def hlo(body: str, *computations: str) -> str:
    return "HloModule t\n" + "".join(computations) + "ENTRY e {\n" + body + "}\n"


ZEROS = " z = TYPE[] constant(0)\n zz = TYPE[37,41] broadcast(z), dimensions={}\n"
SIGN = hlo(
    " x = f32[37,41] parameter(0)\n"
    + ZEROS.replace("TYPE", "f32")
    + " p = pred[37,41] compare(x, zz), direction=GT\n ROOT y = s32[37,41] convert(p)\n"
)
RELU = hlo(" x = TYPE[37,41] parameter(0)\n" + ZEROS + " ROOT y = TYPE[37,41] maximum(x, zz)\n")
POWERS = hlo(
    " x = f32[37,41] parameter(0)\n k = f32[] constant(5)\n kk = f32[37,41] broadcast(k),"
    " dimensions={}\n m = f32[37,41] multiply(x, kk)\n ROOT y = f32[37,41] exponential(m)\n"
)
TRUTH = hlo(
    " x = f32[37,41] parameter(0)\n"
    + ZEROS.replace("TYPE", "f32")
    + " ROOT p = pred[37,41] compare(x, zz), direction=GE\n"
)
TOTAL = hlo(
    " x = f32[100000] parameter(0)\n z = f32[] constant(0)\n"
    " ROOT y = f32[] reduce(x, z), dimensions={0}, to_apply=add\n",
    "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b)\n}\n",
)
ODD = hlo(" x = u8[13] parameter(0)\n ROOT y = u8[13] add(x, x)\n")
NIBBLES = hlo(" x = s4[13] parameter(0)\n ROOT y = s4[13] reverse(x), dimensions={0}\n")

Spoil = Callable[[list[np.ndarray], list[np.ndarray], int], None]


def subject(text: str) -> tuple[CpuMachine, Reference]:
    program = Program("hlo", text)
    reference = Reference(program.outputs, tuple(c for c, _ in make_reference(program, TARGET, 0)))
    return CpuMachine(program, reference.ordinary.arguments, TARGET), reference


def spoiled(machine: CpuMachine, func, spoil: Spoil) -> NativeRun:
    """The default kernel, each run of which is followed by ``spoil`` on the bytes it worked on."""
    kernel = machine.compile(func).kernel
    params, inputs = kernel.compiled.params, len(kernel.compiled.params) - kernel.compiled.outputs
    count = 0

    def spoiling(good: NativeFunc) -> NativeFunc:
        def entry(*addresses: int) -> None:
            nonlocal count
            good.entry(*addresses)
            count += 1
            views = []
            for address, b in zip(addresses, params, strict=False):
                views.append(
                    np.ctypeslib.as_array((ctypes.c_uint8 * b.bytes).from_address(address))
                )
            spoil(views[inputs:], views[:inputs], count)

        return replace(good, entry=entry)

    return NativeRun(spoiling(kernel), spoiling(poisoned(kernel)), machine)


def verdict(text: str, spoil: Spoil) -> str:
    machine, reference = subject(text)
    program = Program("hlo", text)
    schedule = make_schedule(program.func, {}, TARGET, Candidate(DEFAULT_SKETCH, {}))
    run = spoiled(machine, schedule.func, spoil)
    try:
        check(run, reference, lambda doing: None)
        run.call(3)
        check_again(run, reference, lambda doing: None)
    except Wrong as e:
        return str(e)
    return ""


@pytest.mark.parametrize("text", [SIGN, RELU.replace("TYPE", "f16"), TRUTH, TOTAL, ODD, NIBBLES])
def test_right_kernels_pass(text: str) -> None:
    assert verdict(text, lambda outputs, inputs, n: None) == ""


def test_the_error_that_is_told_is_that_of_ordinary_values() -> None:
    machine, reference = subject(POWERS)
    schedule = make_schedule(Program("hlo", POWERS).func, {}, TARGET, Candidate(DEFAULT_SKETCH, {}))
    run = machine.compile(schedule.func)
    errors = [
        judge(run.trial(c.arguments, 0xFF, True).results, c, reference.outputs)[0]
        for c in reference.cases
    ]
    assert check(run, reference, lambda doing: None) == errors[0] != errors[-1]


def test_a_few_wrong_integers_are_found_though_a_parameter_is_float() -> None:
    def spoil(outputs, inputs, n) -> None:
        outputs[0].view(np.int32)[-1:] += 1

    assert "differs in 0.07% of the elements" in verdict(SIGN, spoil)


@pytest.mark.parametrize(("name", "size"), [("f32", 4), ("f16", 2), ("bf16", 2), ("f64", 8)])
@pytest.mark.parametrize("fill", [0xA5, 0x00])
def test_elements_never_written_are_found(name: str, size: int, fill: int) -> None:
    """Those that are zero in a right result, of what memory happens to hold."""
    before: dict[int, int] = {}

    def spoil(outputs, inputs, n) -> None:
        words = outputs[0].reshape(-1, size)
        zero = (words == 0).all(1)
        words[zero] = before.setdefault(n, fill if fill else 0xFF)

    assert "instead of 0" in verdict(RELU.replace("TYPE", name), spoil)


def test_small_elements_count_as_much_as_large_ones() -> None:
    def spoil(outputs, inputs, n) -> None:
        y = outputs[0].view(np.float32)
        y[y < y.max() * 1e-5] = 0

    assert "differs" in verdict(POWERS, spoil)


def test_one_term_of_many_is_missed() -> None:
    def spoil(outputs, inputs, n) -> None:
        x = inputs[0].view(np.float32)
        outputs[0].view(np.float32)[:] -= x[np.flatnonzero(x)[-1]]

    assert "(whole numbers)" in verdict(TOTAL, spoil)


@pytest.mark.parametrize("first", [2, 3, 5, 7])
def test_wrong_from_a_later_call_on(first: int) -> None:
    def spoil(outputs, inputs, n) -> None:
        if n >= first:
            outputs[0][:] = 0xFF

    found = verdict(RELU.replace("TYPE", "f32"), spoil)
    assert ("after it was timed" in found) == (first > 3)
    assert "nan instead of" in found


def test_overwritten_inputs_are_found() -> None:
    def spoil(outputs, inputs, n) -> None:
        inputs[0][-1] ^= 1

    assert verdict(SIGN, spoil) == "it overwrites input 0 (whole numbers)"

    other: dict[str, int] = {}

    def late(outputs, inputs, n) -> None:
        if n > 3:
            inputs[0][-1] = other.setdefault("byte", int(inputs[0][-1]) ^ 1)

    assert "it overwrites input 0 (ordinary values, after it was timed)" in verdict(SIGN, late)


@pytest.mark.parametrize("upper", [True, False])
def test_bytes_written_beside_a_buffer_are_found(upper: bool) -> None:
    """On the side where no guard page is."""

    def spoil(outputs, inputs, n) -> None:
        address = outputs[0].ctypes.data
        if n == (1 if upper else 2):
            ctypes.memset(address - 1 if upper else address + outputs[0].size, 0x11, 1)

    assert "it writes outside parameter 1" in verdict(ODD, spoil)


def test_truth_values_are_0_or_1_and_nibbles_have_no_high_bits() -> None:
    def spoil(outputs, inputs, n) -> None:
        outputs[0][outputs[0] == 1] = 0xFF

    assert "neither 0 nor 1" in verdict(TRUTH, spoil)

    def high(outputs, inputs, n) -> None:
        outputs[0][3] |= 0x20

    assert "bits are set above" in verdict(NIBBLES, high)


def test_a_function_of_loops_is_exact_on_whole_numbers() -> None:
    text = "HloModule t\nENTRY e {\n x = f32[9,20] parameter(0)\n w = f32[20,7] parameter(1)\n"
    text += " ROOT y = f32[9,7] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    program = Program("loop", show(Program("hlo", text).func))
    cases = [case for case, _ in make_reference(program, TARGET, 0)]
    assert [case.wanted[0].bound is None for case in cases] == [False, True, False]
    reference = Reference(program.outputs, tuple(cases))
    machine = CpuMachine(program, cases[0].arguments, TARGET)
    run = machine.compile(default_schedule(program.func, TARGET).func)
    assert check(run, reference, lambda doing: None) < 1e-6


def test_a_standard_is_the_same_from_its_file(tmp_path) -> None:
    program = Program("hlo", POWERS)
    path = tmp_path / "reference.npz"
    made, read = (load_reference(program, TARGET, 3, path) for _ in range(2))
    for a, b in zip(made.cases, read.cases, strict=True):
        assert a.name == b.name
        assert all(np.array_equal(x, y) for x, y in zip(a.arguments, b.arguments, strict=True))
        assert judge([w.value for w in a.wanted], b, program.outputs) == (0.0, "")
        assert np.array_equal(a.wanted[0].bound, b.wanted[0].bound)


def test_a_standard_that_has_no_space_on_the_disk_is_computed_again(tmp_path, monkeypatch) -> None:
    def full(file, **arrays) -> None:
        file.write(b"PK")
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr(np, "savez", full)
    program = Program("hlo", POWERS)
    for _ in range(2):
        assert load_reference(program, TARGET, 3, tmp_path / "reference.npz").cases
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("units", "right"), [(0, True), (1, True), (4, True), (8, False), (-8, False)]
)
def test_without_a_bound_a_large_element_is_judged_by_its_own_size(units: int, right: bool) -> None:
    values = np.ones(1024)
    values[3], values[5], values[7] = 40.0, np.inf, np.nan
    out = Buffer("y", (1024,), bf16)
    wanted = _wanted(Bounded(values, np.full(1024, np.inf)), out)
    case = ReferenceCase("ordinary values", (), (wanted,))
    found = values.astype(to_numpy(bf16))
    found.view(np.int16)[3] += units
    assert (judge([found], case, [out])[1] == "") == right
    for place, value in ((5, 3e38), (7, 0.0), (0, 1.25)):
        wrong = found.copy()
        wrong[place] = value
        assert judge([wrong], case, [out])[1]


def test_what_may_be_too_large_for_a_type_may_be_infinite() -> None:
    values = np.array([65000.0, 65000.0, 1.0])
    out = Buffer("y", (3,), f16)
    wanted = _wanted(Bounded(values, np.array([1000.0, 100.0, 1.0])), out)
    case = ReferenceCase("values far apart", (), (wanted,))
    for place, found, right in (
        (0, np.inf, True),
        (0, -np.inf, False),
        (0, np.nan, False),
        (1, np.inf, False),
        (2, np.inf, False),
    ):
        results = values.astype(np.float16)
        results[place] = found
        assert (judge([results], case, [out])[1] == "") == right


def test_exponentials_may_be_as_narrow_as_values_where_pairs_of_bf16_are_added() -> None:
    text = hlo(
        " x = f32[8,64] parameter(0)\n v = bf16[64,16] parameter(1)\n"
        " p = f32[8,64] exponential(x)\n w = f32[64,16] convert(v)\n"
        " d = f32[8,16] dot(p, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        " ROOT y = TYPE[8,16] convert(d)\n"
    )
    errors = {}
    for spec in ("skylake-avx512", "znver4", "znver4 -accuracy=0.01"):
        for dtype in ("bf16", "f64"):
            program = Program("hlo", text.replace("TYPE", dtype))
            (case, _), *_ = make_reference(program, Target.parse(f"cpu -mcpu={spec}"), 0)
            errors[spec, dtype] = float(case.wanted[0].bound.mean())
    assert errors["znver4", "bf16"] > 1.5 * errors["skylake-avx512", "bf16"]
    assert errors["znver4", "f64"] == errors["skylake-avx512", "f64"]
    assert errors["znver4 -accuracy=0.01", "f64"] > 10 * errors["znver4", "f64"]


def test_guarded_memory_lies_against_its_pages() -> None:
    cell = GuardedMemory(PAGE + 10)
    low = cell.place(PAGE + 10, 4, upper=False, pattern=7)
    start = low.ctypes.data
    assert start % PAGE == 0 and cell.intact and (low == 7).all()
    high = cell.place(PAGE + 10, 4, upper=True, pattern=8)
    assert high.ctypes.data % 4 == 0 and start + 2 * PAGE - (high.ctypes.data + high.size) < 4
    ctypes.memset(high.ctypes.data - 1, 9, 1)
    assert not cell.intact
    assert GuardedMemory(0).place(0, 64, upper=True, pattern=1).size == 0
