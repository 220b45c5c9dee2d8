"""Random decisions of the sketches for models of ``kernels``, held against the tuner's reference.

Half of the models are built whole by default; of the others a random task gets a random schedule,
and its results may differ from those in f64 only as far as the error analysis allows. Threads of a
simulated GPU run in a random order.
"""

from __future__ import annotations

import os
import random
from functools import cache

from nestwright.autotune.measure.harness import MARGIN
from nestwright.autotune.measure.reference import judge as judge_results
from nestwright.autotune.measure.reference import make_reference
from nestwright.autotune.tasks.extract import Task, extract
from nestwright.codegen.driver.kernel import compile_func
from nestwright.ir.comparison import leaves
from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.excess_error import excess_error
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import default_schedule, generate

from . import kernels, programs

DRAWS = 40  # of a sketch's decisions, until some are valid
SEED = "NESTWRIGHT_SIM_SEED"


@cache
def machine(spec: str) -> Target:
    """Return a target by its text."""
    return Target.parse(spec)


def judge(seed: int, number: int, spec: str) -> str:
    """Draw a model and schedules of it; ``right``, or what is wrong."""
    rng = random.Random(f"{seed} {number} sketches")
    os.environ[SEED] = str(rng.randrange(1000))
    program = kernels.draw(seed, number)
    if rng.random() < 0.5:
        return programs.judge(program, number, spec)
    target = machine(spec)
    try:
        tasks = extract(optimize(parse(program.text)), target)
    except UnsupportedError as error:
        return f"refused: {error}"
    return _task(rng.choice(tasks), target, rng) if tasks else "skipped"


def _task(task: Task, target: Target, rng: random.Random) -> str:
    sch = sketched(task.program.func, target, rng)
    if sch is None:
        return "skipped"
    seed = rng.randrange(1000)
    try:
        kernel = compile_func(sch.func, target)
    except (ScheduleError, UnsupportedError) as error:
        return f"refused: {error}"
    excess = min(target.accuracy, MARGIN * excess_error(sch.func))
    for case, _ in make_reference(task.program, target, seed):
        results = leaves(kernel(*case.arguments))
        _, told = judge_results(results, case, task.program.outputs, excess)
        if told:
            return f"BAD wrong: {told}\n{sch.trace.show()}\n{task.program.text}"
    return "right"


def sketched(func: Func, target: Target, rng: random.Random) -> Schedule | None:
    """Return a sketch with random decisions; the default schedule where there is no sketch."""
    sketches = generate(func, target)
    if not sketches:
        return default_schedule(func, target)
    sketch = rng.choice(sketches)
    for _ in range(DRAWS):
        choices = {name: rng.choice(list(some)) for name, some in sketch.decisions.items()}
        if not sketch.valid(choices):
            continue
        sch = Schedule(func)
        try:
            sketch.apply(sch, choices)
        except ScheduleError:
            continue
        return sch
    return None
