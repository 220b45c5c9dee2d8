"""No sequence of primitives makes a wrong program: each is refused readably, or means the same."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fuzz.loops import PROGRAMS
from fuzz.requests import ON_THREADS, WEIGHTS, Draw, attempt

from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import AxisKind, Block, For, Func, Kind
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.visit import equal, walk
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule, Trace
from nestwright.schedule.legality import bound_vars
from nestwright.schedule.limits import check_limits

pytestmark = pytest.mark.usefixtures("every_pass")

GPU = Target.parse("cuda-sim -arch=sm_80").gpu
Machine = Callable[[Func, list[np.ndarray[Any, Any]], int], list[np.ndarray[Any, Any]]]


def inputs(func: Func) -> list[np.ndarray[Any, Any]]:
    """Small integers in floats: sums in any order are exact."""
    rng = np.random.default_rng(7)
    shapes = [b.shape for b in func.params[: len(func.params) - func.outputs]]
    return [rng.integers(-4, 5, s).astype(np.float32) for s in shapes]


def reduces_by_lanes(func: Func) -> bool:
    """Whether a reduction runs as lanes: they meet in one element on purpose."""
    lanes = {s.var for s in walk(func.body) if isinstance(s, For) and s.kind is Kind.VECTOR}
    blocks = [s for s in walk(func.body) if isinstance(s, Block)]
    return any(lanes & bound_vars(b, AxisKind.REDUCE) for b in blocks)


def campaign(
    make: Callable[[], Func],
    seeds: range,
    most: int = 10,
    weights: dict[str, int] = WEIGHTS,
    run_threads: Machine | None = None,
) -> dict[str, list[int]]:
    """Random sequences on one program; how often each primitive was taken and refused."""
    counts = {name: [0, 0] for name in weights}
    names = [n for n, w in weights.items() for _ in range(w)]
    func = make()
    args = inputs(func)
    expected = run(func, args)
    for seed in seeds:
        rng = random.Random(seed)
        sch = Schedule(func)
        draw = Draw(sch, rng)
        if run_threads is not None:
            draw.launch()
        for _ in range(rng.randrange(2, most)):
            name = rng.choice(names)
            taken = attempt(sch, getattr(draw, name))
            counts[name][not taken] += 1
        try:
            missing = check_limits(sch.func, GPU)
            whole = not reduces_by_lanes(sch.func) and not missing
            results = run(sch.func, args, seed=seed, check_races=whole)
            if run_threads is not None and not any("writes a" in r.why for r in missing):
                results += run_threads(sch.func, args, seed)
            for want, got in zip(expected * (len(results) // len(expected)), results, strict=True):
                np.testing.assert_array_equal(got, want)
            plain = json.loads(json.dumps(sch.trace.to_json()))
            assert equal(Trace.from_json(plain).replay(func).func, sch.func)
        except BaseException:
            print(f"{make.__name__} seed {seed}\n{sch.trace.show()}\n{show(sch.func)}")
            raise
    return counts


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_random_sequences(make: Callable[[], Func]) -> None:
    counts = campaign(make, range(36))
    assert sum(taken for taken, _ in counts.values()) > 50
    assert sum(refused for _, refused in counts.values()) > 6


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_random_sequences_on_threads(make: Callable[[], Func], run_threads: Machine) -> None:
    counts = campaign(make, range(11), 12, ON_THREADS, run_threads)
    assert sum(taken for taken, _ in counts.values()) > 22
    assert sum(refused for _, refused in counts.values()) > 11
