"""Random schedules, compiled and run beside guard pages, held against the unscheduled program.

Half of them are sketches with random decisions, half are random requests to the primitives. The
programs are the groups of random exact HLO modules, with the values that reach them there, and the
small loop programs of ``loops``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from nestwright.codegen.driver.kernel import compile_object
from nestwright.codegen.plan.groups import fuse_module
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.runtime.process import runtime
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.printer import show
from nestwright.ir.target import Target
from nestwright.schedule.cursor import nest
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule
from nestwright.te.from_hlo import lower_group
from nestwright.te.from_hlo.storage import stored

from . import programs
from .builder import Array
from .guarded import Guarded, guarded
from .loops import PROGRAMS
from .programs import equal_arrays
from .requests import WEIGHTS, Draw, attempt
from .sketches import sketched

NAMES = tuple(n for n, w in WEIGHTS.items() for _ in range(w))


@cache
def machine() -> Target:
    """This processor, with two threads, so that parallel loops run as such."""
    return Target.parse("cpu -threads=2")


def judge(seed: int, number: int) -> str:
    """Draw a program and a schedule of it; ``right``, or what is wrong."""
    rng = random.Random(f"{seed} {number}")
    found = _loops(rng) if rng.random() < 0.3 else _group(rng, seed, number)
    if found is None:
        return "skipped"
    func, inputs, want = found
    sch = _requested(func, rng) if rng.random() < 0.4 else sketched(func, machine(), rng)
    if sch is None:
        return "skipped"
    try:
        kernel = NativeFunc.load(compile_object(sch.func, machine()))
    except (ScheduleError, UnsupportedError) as error:
        return f"refused: {error}"
    told = _run(kernel, inputs, want, at_end=number % 4 != 3)
    return f"BAD wrong: {told}\n{sch.trace.show()}\n{show(func)}" if told else "right"


def _loops(rng: random.Random) -> tuple[Func, list[Array], list[Array]]:
    func = rng.choice(PROGRAMS)()
    draw = np.random.default_rng(rng.getrandbits(32))
    shapes = [b.shape for b in func.params[: len(func.params) - func.outputs]]
    inputs: list[Array] = [draw.integers(-4, 5, s).astype(np.float32) for s in shapes]
    return func, inputs, run(func, inputs)


def _group(
    rng: random.Random, seed: int, number: int
) -> tuple[Func, list[Array], list[Array]] | None:
    """Return a group of a random exact module, with the values that its inputs and outputs have
    there.
    """
    program = programs.draw(seed, number, exact=True)
    optimized = optimize(parse(program.text))
    values: dict[Any, Any] = {}
    with np.errstate(all="ignore"):
        evaluate_computation(optimized.entry, program.arguments, values.__setitem__)
    groups = [g for g in fuse_module(optimized).distinct.values() if g.outputs[0] in values]
    groups = [g for g in groups if all(i in values for i in (*g.inputs, *g.outputs))]
    if not groups:
        return None
    group = rng.choice(groups)
    try:
        func = lower_group(group.computation, "kernel")
    except UnsupportedError:
        return None
    return (
        func,
        [stored(values[i]) for i in group.inputs],
        [stored(values[o]) for o in group.outputs],
    )


def _requested(func: Func, rng: random.Random) -> Schedule:
    """So many random requests, of which some are taken."""
    sch = Schedule(func)
    draw = Draw(sch, rng)
    for _ in range(rng.randrange(2, 10)):
        if nest(sch.func).loops:
            attempt(sch, getattr(draw, rng.choice(NAMES)))
    return sch


def _run(kernel: NativeFunc, inputs: Sequence[Array], want: Sequence[Array], at_end: bool) -> str:
    """Run twice, outputs and workspace full of different patterns, everything beside guards."""
    held = [guarded(np.ascontiguousarray(x), at_end) for x in inputs]
    outs = [Guarded(s.dims, to_numpy(s.dtype), at_end) for s in kernel.compiled.results]
    size = -(-kernel.compiled.workspace // 64) * 64
    work = Guarded((size,), np.dtype(np.uint8), at_end)
    every = [*held, *outs, work]
    pointers = [g.array.ctypes.data for g in (*held, *outs)]
    bound, packed = kernel.bind(pointers)
    extra = [work.array.ctypes.data] if size else []
    runtime().set_threads(kernel.compiled.target.threads)
    told = ""
    for fill in (0xFF, 0x5B):
        for one in (*outs, work):
            one.array.reshape(-1).view(np.uint8)[:] = fill
        kernel.entry(*bound, *extra)
        told = told or _wrong(inputs, want, held, outs, every)
    del packed
    for one in every:
        one.close()
    return told


def _wrong(
    inputs: Sequence[Array],
    want: Sequence[Array],
    held: Sequence[Guarded],
    outs: Sequence[Guarded],
    every: Sequence[Guarded],
) -> str:
    for n, (one, value) in enumerate(zip(held, inputs, strict=True)):
        if one.array.tobytes() != np.ascontiguousarray(value).tobytes():
            return f"input {n} was overwritten"
    for n, one in enumerate(every):
        if not one.intact:
            return f"buffer {n} was left"
    for n, (out, value) in enumerate(zip(outs, want, strict=True)):
        if not equal_arrays(out.array, value):
            return f"output {n} is\n{out.array}\nnot\n{value}"
    return ""
