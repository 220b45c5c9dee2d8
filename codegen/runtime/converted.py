"""Calls whose arguments or results are converted before native code takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...ir.arrays import Array
from ..plan.nodes import Plan
from ..plan.signature import ArraySpec
from ..plan.updates import Updates
from .arguments import answer, check_outputs, convert_all
from .arguments import refuse_keyword as refuse_keyword
from .bounded import empty, live, padded

Run: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], None]
"""Runs on C-contiguous arguments, into C-contiguous results."""


def run(
    plan: Plan,
    args: Sequence[object],
    out: object,
    run_arrays: Run,
    where: str,
    updated: Updates,
) -> Any:
    """Run a plan on what a call was given; the results go to ``out`` unless it is None.

    Arguments that the plan ``updated`` may be among the arrays of ``out``.
    """
    arrays = padded(convert_all(args, plan.params, plan.param_tree, where), plan.params)
    if out is None:
        results = empty(plan.results)
        run_arrays(arrays, results)
        return answer(live(results, plan.results), plan.results, plan.result_tree)
    targets = check_outputs(out, plan.results, plan.result_tree, where)
    into(targets, plan.results, arrays, run_arrays, updated)
    return out


def into(
    targets: Sequence[Array],
    specs: Sequence[ArraySpec],
    arrays: Sequence[Array],
    run: Run,
    updated: Updates = frozenset(),
) -> None:
    """Run into the caller's arrays, through temporaries where writing directly is not safe."""
    direct = _can_write_directly(targets, arrays, updated)
    results = targets if direct else empty(specs)
    run(arrays, results)
    if not direct:
        for target, result in zip(targets, results, strict=True):
            np.copyto(target, result)


def _can_write_directly(
    targets: Sequence[Array], arrays: Sequence[Array], updated: Updates
) -> bool:
    """True if no target is strided or overlaps another target, or an argument that it does not
    update.
    """
    for n, target in enumerate(targets):
        if not target.flags.c_contiguous:
            return False
        others = [
            array
            for k, array in enumerate(arrays)
            if not ((k, n) in updated and array.ctypes.data == target.ctypes.data)
        ]
        if any(np.may_share_memory(target, other) for other in (*others, *targets[:n])):
            return False
    return True
