"""The symbols and statuses on which generated code, its runtime and its callers agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .code.form import Code

PROGRAM = "nw_program"  # runs a whole plan
LIBRARY = "nw_library"  # the way out to functions of the host
EACH = "nw_each"  # calls a routine for each matrix of a batch
POLL = "nw_poll"  # asks whether the call has been interrupted
PARALLEL = "nw_parallel"  # runs a loop on the pool's threads
POOL = "nw_pool_parallel"  # the same, for the probe that stands in for it
PROBE = "nw_probe"  # the probe's structure
PROBE_BEGIN = "nw_probe_begin"  # tells it that a thunk begins
PROBE_END = "nw_probe_end"
PROBE_COST = "nw_probe_cost"  # measures what telling takes
SIMULATION_FAILED = "nw_sim_failed"  # asks whether a simulated run has a fault
NO_MEMORY = 1  # the status of a program that got no arena
FAILED = 2  # the status of a program after a library call that failed
INTERRUPTED = 3  # the status of an interrupted program

RUNTIME = (
    PARALLEL,
    "nw_scratch",
    "nw_scratch_mark",
    "nw_scratch_release",
    "nw_pool_init",
    "nw_pool_set_threads",
    "nw_pool_threads",
    EACH,
    "nw_call",
    "nw_run",
    "nw_arena_free",
    POLL,
    "nw_enter",
    "nw_guarded",
    "nw_leave",
    "nw_record",
    "nw_lend",
    "nw_signals_init",
    "nw_signals_main",
    "nw_unwatched",
    "nw_watch",
    "nw_ignore",
    "nw_interrupts",
)
"""Functions of the runtime that all executables of a process share."""


def step_symbol(number: int) -> str:
    """Return the symbol of the control flow that is top-level thunk ``number`` of a plan."""
    return f"nw_step_{number}"


def polls_interrupts(code: Code) -> bool:
    """True if a kernel polls for interrupts: it may then return early, its outputs half written."""
    return isinstance(code, bytes) and POLL.encode() in code
