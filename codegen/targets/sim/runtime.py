"""The simulator's runtime in LLVM IR: its state, launches and blocks. ``module_text`` is all of it.

``void nw_sim_launch(ptr launch, ptr args)`` runs a launch (``layout.LAUNCH``): its blocks one after
the other, in an order drawn from the seed. An order is an arithmetic progression modulo the number
of blocks, its step and start drawn from a counter. After a fault nothing runs until
``nw_sim_clear``, nor after the call was interrupted, which ``i1 nw_sim_stopped()`` asks.

Time is a counter that moves at every barrier; ``shadow.ll`` tells by it what is ordered.
"""

from __future__ import annotations

from ....ir.target import Target
from ...emit.llvm.template import render
from ...plan.symbols import POLL
from ...runtime.sim.structs import NAMES, STOPPED

_BELOW = (5, 17, 65, 99, 107, 135, 153, 185, 209, 267, 299, 315, 353, 369, 387, 419)
_STEPS = tuple(2**32 - k for k in _BELOW)
"""Primes: each has no factor in common with any smaller number of threads or blocks."""

TURNS = 64  # of threads, between two polls


_PARTS = (
    *("rounds.ll", "records.ll", "shadow.ll", "arrivals.ll", "copies.ll"),
    "clusters.ll",
)


def module_text(target: Target) -> str:
    """Return the runtime's LLVM module for a host."""
    names = {
        "triple": target.triple,
        "steps": ", ".join(f"i64 {n}" for n in _STEPS),
        "turns": TURNS,
        "poll": POLL,
        "stopped": STOPPED,
    }
    own = render(__package__, "runtime.ll", [NAMES], names)
    parts = [render(__package__, part, [NAMES]) for part in _PARTS]
    return "\n".join([own, *parts, render(__package__, "matrix.ll")])
