"""Reference results of a task on every set of inputs, with error bounds.

Each element has its own bound, from the error analysis in f64 (``ir.hlo.bounds``). Results without
rounding have the bound 0 and must be equal. If the analysis has no bound, a tolerance relative to
the output's root mean square applies, or to the element if that is larger, and all but one in a
thousand integers must be equal. That applies to functions written as loops, too, unless f32 and f64
agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...ir.accuracy import bf16_dot, tolerance
from ...ir.arrays import Array
from ...ir.dtypes import DType, bf16, f32, f64, to_numpy
from ...ir.files import whole_file
from ...ir.hlo.bounds.bounded import Bounded, MachineRounding
from ...ir.hlo.bounds.bounded import largest as largest_of
from ...ir.hlo.bounds.evaluate import evaluate
from ...ir.lane_dots import lane_dot
from ...ir.loop.nodes import Buffer
from ...ir.target import Target
from ...te.from_hlo.storage import restored
from ..tasks.programs import Program
from .inputs import FAR, LADDER, ORDINARY, WHOLE, far_apart, whole_numbers

STRAY = 1e-3  # share of integers without a bound that may differ
TF32 = 2.0**-10 * 2 / 3  # relative error of an operand of ten bits: see TF32_SCALE
LARGE = 1 << 17  # elements of all arrays above which only one range of whole numbers is tried
PEAK = 16  # times the root mean square of an added error that one element may have
HUGE = 1 << 21  # the same above which floats are not tested on values far apart


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """One expected output: its elements, the bound of each (None: all must be equal), its size.

    ``value`` is f64 for an output of f64, f32 for other floats, else of the output's own type.
    ``rms`` is the root mean square of the finite elements.
    """

    value: Array
    bound: Array | None
    rms: float = 0.0


@dataclass(frozen=True, slots=True)
class ReferenceCase:
    """One set of inputs with the expected outputs."""

    name: str
    arguments: tuple[Array, ...]
    wanted: tuple[ExpectedOutput, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """The cases that a candidate of a task is checked on.

    Ordinary values, whole numbers and, for tasks that are not too large, values far apart.
    """

    outputs: tuple[Buffer, ...]
    cases: tuple[ReferenceCase, ...]

    @property
    def ordinary(self) -> ReferenceCase:
        """The case whose arguments are also used for timing."""
        return self.cases[0]


def load_reference(program: Program, target: Target, seed: int, path: Path) -> Reference:
    """Load the reference from a file, or compute it and save it there, if that has space for it."""
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            names = [n.removeprefix("case ") for n in file.files if n.startswith("case ")]
            cases = [_read(file, name, int(file[f"case {name}"]), program, seed) for name in names]
        return Reference(program.outputs, tuple(cases))
    made = make_reference(program, target, seed)
    arrays: dict[str, Array] = {}
    for case, largest in made:
        arrays[f"case {case.name}"] = np.array(largest)
        for n, w in enumerate(case.wanted):
            arrays[f"{case.name} {n} value"] = _raw(w.value)
            arrays[f"{case.name} {n} rms"] = np.array(w.rms)
            if w.bound is not None:
                arrays[f"{case.name} {n} bound"] = w.bound
    with suppress(OSError):  # a full disk is not a candidate's fault: each child computes its own
        _save(path, arrays)
    return Reference(program.outputs, tuple(case for case, _ in made))


def _save(path: Path, arrays: Mapping[str, Array]) -> None:
    with whole_file(path, durable=False) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def make_reference(program: Program, target: Target, seed: int) -> list[tuple[ReferenceCase, int]]:
    """Compute each case, with the largest of its whole numbers (0: not whole numbers)."""
    rounding = MachineRounding(
        TF32 if target.tf32 else 0.0, target.row.rounds, _f8_sums(target), _factors(program, target)
    )
    ordinary = _case(program, ORDINARY, program.arguments(seed), rounding)
    best: tuple[ReferenceCase, int] | None = None
    size = sum(math.prod(b.shape) for b in program.func.params)
    for largest in LADDER if size < LARGE else LADDER[-2:-1]:
        case = _case(program, WHOLE, whole_numbers(program, seed, largest), rounding)
        if best is None or _inexact(case) < _inexact(best[0]):
            best = case, largest
        if not _inexact(case) or not any(b.dtype.is_float for b in program.func.params):
            break
    assert best is not None
    if size > HUGE and all(b.dtype.is_float for b in program.inputs):
        return [(ordinary, 0), best]
    return [(ordinary, 0), best, (_case(program, FAR, far_apart(program, seed), rounding), 0)]


def _f8_sums(target: Target) -> int:
    """Return the bits of sums of products of 8-bit floats; those of f32 on a processor."""
    return target.gpu.f8_sums if target.row.work == "launches" else 24


def _factors(program: Program, target: Target) -> int:
    """Return the bytes of the narrowest type of a computed factor: those of results where products
    take it so, on a GPU or by pairs of bf16.
    """
    results = max(b.dtype.bytes for b in program.outputs)
    if target.row.work == "launches":
        return results
    if lane_dot(target, bf16, bf16) is None:
        return f32.bytes
    return results if bf16_dot(target) is None else bf16.bytes


def _inexact(case: ReferenceCase) -> int:
    """Return the number of elements that may differ."""
    return sum(int(np.count_nonzero(w.bound)) for w in case.wanted if w.bound is not None)


def _case(
    program: Program, name: str, arguments: list[Array], rounding: MachineRounding
) -> ReferenceCase:
    if program.computation is None:
        wanted = _by_loops(program, arguments)
    else:
        shapes = (p.array for p in program.computation.parameters)
        given = [restored(a, s) for a, s in zip(arguments, shapes, strict=True)]
        found = evaluate(program.computation, given, rounding)
        wanted = [_wanted(x, b) for x, b in zip(found, program.outputs, strict=True)]
    return ReferenceCase(name, tuple(arguments), tuple(wanted))


def _by_loops(program: Program, arguments: list[Array]) -> list[ExpectedOutput]:
    """Return the expected outputs of a loop function: exact if its own types and f64 agree."""
    own = program.expect(arguments)
    wide = program.expect_wide(arguments)
    floats = any(b.dtype.is_float for b in program.func.params)
    made = []
    for n, (a, out) in enumerate(zip(own, program.outputs, strict=True)):
        same = not floats or (wide is not None and _agree(a, wide[n]))
        error = None if same else np.full(a.shape, np.inf)
        value = a.astype(np.float64) if out.dtype.is_float else a
        made.append(_wanted(Bounded(value, error), out))
    return made


def _agree(a: Array, b: Array) -> bool:
    return np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True)


def _wanted(x: Bounded, out: Buffer) -> ExpectedOutput:
    value, error = x.value, None if x.certain else x.errors
    if value.dtype.kind == "c":  # as in memory: two parts with the same bound
        error = None if error is None else np.repeat(error[..., None], 2, -1)
        value = np.stack([value.real, value.imag], -1)
    if not out.dtype.is_float:
        kept = None if error is None else error.astype(np.float32)
        return ExpectedOutput(np.ascontiguousarray(value, to_numpy(out.dtype)), kept)
    with np.errstate(all="ignore"):
        finite = value[np.isfinite(value)]
        rms = math.sqrt(float(np.mean(finite**2))) if finite.size else 0.0
        if error is not None:
            size = np.maximum(np.where(np.isfinite(value), np.abs(value), 0.0), rms)
            error = np.where(np.isinf(error), tolerance(out.dtype) * size, error)
        if out.dtype == f64:
            return ExpectedOutput(
                np.ascontiguousarray(value), None if error is None else error, rms
            )
        near = np.ascontiguousarray(value, np.float32)
        off = np.where(np.isfinite(value), np.abs(near.astype(np.float64) - value), 0.0)
        if error is None and not off.any():
            return ExpectedOutput(near, None, rms)
        bound = (0.0 if error is None else error) + off
        above = np.nextafter(bound.astype(np.float32), np.float32(np.inf))
    return ExpectedOutput(near, np.where(bound == 0, np.float32(0), above), rms)


def _raw(a: Array) -> Array:
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8)


def _read(
    file: Mapping[str, Array], name: str, largest: int, program: Program, seed: int
) -> ReferenceCase:
    match name:
        case "ordinary values":
            arguments = program.arguments(seed)
        case "whole numbers":
            arguments = whole_numbers(program, seed, largest)
        case _:
            arguments = far_apart(program, seed)
    wanted = []
    for n, out in enumerate(program.outputs):
        dtype = _kept(out.dtype)
        value = file[f"{name} {n} value"].view(dtype).reshape(out.shape)
        bound = file.get(f"{name} {n} bound")
        wanted.append(ExpectedOutput(value, bound, float(file[f"{name} {n} rms"])))
    return ReferenceCase(name, tuple(arguments), tuple(wanted))


def _kept(dtype: DType) -> np.dtype[Any]:
    """Return the type in which expected results are stored."""
    if not dtype.is_float:
        return to_numpy(dtype)
    return np.dtype(np.float64 if dtype == f64 else np.float32)


def judge(
    results: Sequence[Array],
    case: ReferenceCase,
    outputs: Sequence[Buffer],
    excess: float = 0.0,
) -> tuple[float, str]:
    """Return the largest error relative to its output's rms, and a complaint ("" if correct).

    ``excess`` is the error that may be added to the bounds: its root mean square relative to that
    of the output. A single element may have ``PEAK`` times as much.
    """
    worst = 0.0
    for n, (got, want, out) in enumerate(zip(results, case.wanted, outputs, strict=True)):
        error, told = _judge(got, want, out.dtype, excess)
        if told:
            which = f" of output {n}" if len(outputs) > 1 else ""
            return error, f"{told}{which}"
        worst = max(worst, error)
    return worst, ""


def _judge(got: Array, want: ExpectedOutput, dtype: DType, excess: float) -> tuple[float, str]:
    if not got.size:
        return 0.0, ""
    if not dtype.is_float:
        return 0.0, _judge_integers(got, want, dtype)
    wide = got if got.dtype == want.value.dtype else got.astype(want.value.dtype)
    with np.errstate(all="ignore"):
        off = np.abs(wide - want.value)
        same = (wide == want.value) | (np.isnan(wide) & np.isnan(want.value))
        allowed = excess * want.rms
        bound = np.zeros(1) if want.bound is None else want.bound
        # What a type cannot hold is infinite, and so may be what is that near.
        beyond = np.isinf(wide) & (np.copysign(want.value, wide) == want.value)
        same |= beyond & (bound > 0) & (np.abs(want.value) + bound > largest_of(dtype))
        wrong = ~(same | (off <= bound + PEAK * allowed))
        if wrong.any():
            return math.inf, _told(got, want, wrong)
        spread = _rms(np.where(same, 0.0, off))
        if excess and spread > allowed + _rms(bound):
            return math.inf, f"errs by {spread:.2g}, where {allowed:.2g} is added to rounding"
        worst = float(np.max(off, where=np.isfinite(off), initial=0.0))
    return (worst / want.rms if want.rms else 0.0), ""


def _rms(a: Array) -> float:
    return math.sqrt(float(np.mean(np.square(a, dtype=np.float64))))


def _judge_integers(got: Array, want: ExpectedOutput, dtype: DType) -> str:
    """Compare integers and booleans, including unused bits of their bytes."""
    raw = got.reshape(-1).view(np.uint8)
    if dtype.kind == "pred" and bool((raw > 1).any()):
        return f"{np.mean(raw > 1):.2%} of the truth values are neither 0 nor 1"
    if dtype.bits < 8 and bool((raw >> dtype.bits).any()):
        return "bits are set above those of its elements"
    wrong = np.asarray(got != want.value)
    if not wrong.any():
        return ""
    if want.bound is not None:
        free = np.isinf(want.bound)
        off = np.abs(got.astype(np.float64) - want.value.astype(np.float64))
        wrong &= free | ~(off <= want.bound)
        if not (wrong & ~free).any() and np.count_nonzero(wrong) <= STRAY * got.size:
            return ""
    return _told(got, want, wrong)


def _told(got: Array, want: ExpectedOutput, wrong: Array) -> str:
    at = np.unravel_index(int(np.argmax(wrong)), got.shape)
    place = list(map(int, at))
    bound = "" if want.bound is None else f" +- {float(want.bound[at]):.2g}"
    said = f"{got[at]} instead of {want.value[at]}{bound} at {place}"
    return f"differs in {np.mean(wrong):.2%} of the elements, {said}"
