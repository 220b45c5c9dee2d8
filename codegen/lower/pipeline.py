"""Lowering: a scheduled function becomes plain loops over flat buffers, pass by pass.

Every pass takes and gives a function that means the same. Its row says what holds once it has run,
which is why the rows are in this order, and which stage begins with it (``invariants``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ...ir.loop.nodes import Func
from ...ir.loop.notes import WORKSPACE_BYTES
from ...ir.loop.simplify import simplify_stmt
from ...ir.passes import Instrument, LegalIR, Pass, Pipeline
from ...ir.target import Target
from .invariants import FLAT_IR, OPENED_IR, PLACED_IR, SCHEDULED_IR
from .passes.flatten import flatten
from .passes.guard_updates import guard_updates
from .passes.hoist_init import hoist_init
from .passes.interchange import interchange
from .passes.lower_blocks import lower_blocks
from .passes.name_quotients import name_quotients
from .passes.partition import partition
from .passes.place import compact, place_buffers
from .passes.promote import promote
from .passes.rebuild import with_body
from .passes.roll_epilogues import roll_epilogues
from .passes.unroll import choose_unrolling
from .passes.weight import LIMIT
from .passes.workspace import workspace_bytes


@dataclass(frozen=True, slots=True)
class LoweringPass:
    """A pass, what holds once it has run, and the stage that begins with it, if any."""

    name: str
    run: Callable[[Func, Target], Func]
    then: str
    reaches: LegalIR[Func] | None = None


def untargeted(run: Callable[[Func], Func]) -> Callable[[Func, Target], Func]:
    """Return a pass that does not ask for the target."""
    return lambda func, target: run(func)


def _simplified(func: Func) -> Func:
    return with_body(func, simplify_stmt(func.body))


PLACE = LoweringPass(
    "place_buffers",
    untargeted(place_buffers),
    "Every intermediate buffer is allocated around its uses, at full size.",
    PLACED_IR,
)
BLOCKS = LoweringPass(
    "lower_blocks",
    untargeted(lower_blocks),
    "Axes are the values of loops and guards are conditions, so bounds can be derived.",
    OPENED_IR,
)
SIMPLIFY = LoweringPass(
    "simplify", untargeted(_simplified), "Conditions and indices are in normal form for compact."
)
COMPACT = LoweringPass(
    "compact", untargeted(compact), "Each buffer is as large as the box that its scope touches."
)
SIMPLIFY_COMPACT = LoweringPass(
    "simplify_compact", untargeted(_simplified), "Indices relative to those boxes are short again."
)


def edges(limit: int) -> tuple[LoweringPass, ...]:
    """Return passes that take guards out of loops; copies may make up to ``limit`` lines."""
    return (
        LoweringPass(
            "hoist_init",
            untargeted(hoist_init),
            "A reduction begins before its loop, so no iteration asks whether it is the first.",
        ),
        LoweringPass(
            "name_quotients",
            untargeted(name_quotients),
            "Parts of fused indices have names, so guards over them can be decided.",
        ),
        LoweringPass(
            "partition",
            partial(partition, limit=limit),
            "Main parts of loops have no guards; only the edges keep them.",
        ),
        LoweringPass(
            "promote",
            untargeted(promote),
            "An element that a loop updates is in a register while the loop runs.",
        ),
    )


_GUARD_UPDATES = LoweringPass(
    "guard_updates",
    untargeted(guard_updates),
    "Loops over updates of a tile run where their guards hold, which may be no constant bounds.",
)
_ROLL = LoweringPass(
    "roll_epilogues",
    roll_epilogues,
    "What is much code for each row of a register tile is a loop over its rows, in memory.",
)
UNROLL = LoweringPass(
    "unroll", choose_unrolling, "Loops over register tiles are marked to be written out."
)
FLATTEN = LoweringPass(
    "flatten",
    untargeted(flatten),
    "Buffers have one dimension; layouts are arithmetic.",
    FLAT_IR,
)
SIMPLIFY_FLAT = LoweringPass(
    "simplify_flat",
    untargeted(_simplified),
    "Addresses are in the form that the emitter matches.",
)

INTERCHANGE = LoweringPass(
    "interchange",
    interchange,
    "Vectors of several registers are inside of serial loops, which all of them pass together.",
)

PASSES: tuple[LoweringPass, ...] = (
    *(PLACE, BLOCKS, SIMPLIFY, COMPACT, SIMPLIFY_COMPACT, _ROLL, _GUARD_UPDATES),
    *edges(LIMIT),
    *(INTERCHANGE, UNROLL, FLATTEN, SIMPLIFY_FLAT),
)
"""The passes of a function for a CPU."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """The passes that functions for a kind of target go through, in order."""

    rows: tuple[LoweringPass, ...]

    def pipeline(self, target: Target) -> Pipeline[Func]:
        """Return the same as a pipeline, for instruments to watch."""
        return Pipeline(
            tuple(Pass(r.name, partial(_run, r, target), r.then, r.reaches) for r in self.rows)
        )

    def stages(self, func: Func, target: Target) -> Iterator[tuple[str, Func]]:
        """Yield the name and the result of each pass, in order."""
        for step in self.pipeline(target).passes:
            func = step.run(func)
            yield step.name, func

    def lower(
        self, func: Func, target: Target, instruments: Sequence[Instrument[Func]] = ()
    ) -> Func:
        """Return the flat function: no blocks, buffers of one dimension made where they are used.

        For a GPU it is a sequence of launches: chains of thread loops, each once and in the order
        of ``nodes.THREADS``, around what every thread does.
        ``WORKSPACE_BYTES`` is the memory that its caller must give it (``emit.statements.module``).
        """
        pipeline = self.pipeline(target)
        func = pipeline.checked(func, SCHEDULED_IR, f"lowering {func.name}", instruments)
        size = workspace_bytes(func.body)
        return WORKSPACE_BYTES.put(func, size) if size else WORKSPACE_BYTES.drop(func)


def _run(row: LoweringPass, target: Target, func: Func) -> Func:
    return row.run(func, target)
