"""Machine code of important kernels stays within its budgets; `benchmarks/gpu/budgets` has all."""

from __future__ import annotations

import pytest
from gpu.budgets.count import count, missing, within
from gpu.budgets.kernels import TEXTS
from gpu.budgets.table import ARCHES, BUDGETS, Budget

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no {missing()} on this machine")


SLOW = ("conv bf16", "matmul bf16")  # to build
QUICK = [b for b in BUDGETS if b.kernel not in SLOW]


@pytest.mark.parametrize("budget", QUICK, ids=lambda b: b.kernel)
def test_hottest_loops(budget: Budget) -> None:
    """Each kernel for one of the architectures, in turn."""
    c = count(budget.kernel, budget.measure, ARCHES[BUDGETS.index(budget) % len(ARCHES)])
    assert within(c, budget), f"{c.each:.4g} for each {budget.measure}: {c}"


def test_every_kernel_has_a_budget() -> None:
    assert [b.kernel for b in BUDGETS] == list(TEXTS)
