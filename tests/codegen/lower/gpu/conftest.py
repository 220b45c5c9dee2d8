"""What lowering for GPUs is held against: the schedule's own meaning, thread by thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.targets.registry import lower
from nestwright.ir.dtypes import to_numpy
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

Arguments: TypeAlias = list[np.ndarray[Any, Any]]
TARGET = Target.parse("cuda-sim -arch=sm_80")


@pytest.fixture(scope="session")
def target() -> Target:
    """A GPU with matrix instructions and asynchronous copies."""
    return TARGET


@pytest.fixture(scope="session")
def arguments() -> Callable[[Func], Arguments]:
    """Small whole numbers, whose sums are exact in any order."""

    def make(func: Func) -> Arguments:
        rng = np.random.default_rng(0)
        inputs = func.params[: len(func.params) - func.outputs]
        return [rng.integers(-4, 5, b.shape).astype(to_numpy(b.dtype)) for b in inputs]

    return make


@pytest.fixture(scope="session")
def means_the_same(arguments: Callable[[Func], Arguments]) -> Callable[[str], Func]:
    """The flat function of a schedule, whose threads give what the schedule gives, in no race."""

    def check(before: str) -> Func:
        func = parse(before)
        verify(func)
        flat = lower(func, TARGET)
        verify(flat)
        args = arguments(func)
        lines = [a.reshape(-1) for a in args]
        got = run(flat, lines, check_races=True, seed=1)
        made = Kernel(compile_flat(flat, TARGET))(*lines)
        simulated = made if isinstance(made, tuple) else (made,)
        for expected, *results in zip(run(func, args), got, simulated, strict=True):
            for result in results:
                a, b = (x.reshape(-1).astype(np.float64) for x in (expected, result))
                np.testing.assert_allclose(b, a, rtol=1e-5)
        return flat

    return check
