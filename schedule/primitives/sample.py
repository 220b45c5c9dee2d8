"""Decisions for the tuner: sample_choice, sample_tile."""

from __future__ import annotations

from ...ir.loop.nodes import Func
from ..cursor import LoopRef, extent_of, find_loop, loop_of, named
from ..declare import sampling
from ..errors import ScheduleError
from ..holes import Choice, Hole

MOST = 64  # default limit of an inner loop's extent
DECENT = 8  # default extent of an inner loop, if it fits


def _choice(func: Func, options: tuple[Choice, ...], name: str, decision: Choice | None) -> Hole:
    if not options:
        raise ScheduleError(f"sample `{name}`", "the options are empty", hint="give one or more")
    first = options[0] if decision is None else decision
    return Hole((name,), (tuple(dict.fromkeys(options)),), (first,))


@sampling(_choice)
def sample_choice(
    func: Func, options: tuple[int | str, ...], name: str = "", decision: int | str | None = None
) -> tuple[Func, int | str]:
    """Return one of the options; the tuner decides which.

    Without a tuner it is ``decision``, by default the first option. Logs record the decision under
    ``name``. A value computed from it is fixed in the trace; a rule (see ``nw.schedule_rule``)
    recomputes it for each decision.

    Refused:
        - no options, and a decision that is not one of them
        - a name that another hole of the schedule has

    Example:
        sch = product()
        width = sch.sample_choice([4, 8], "width")
        sch.split("j", [None, width])
    """
    assert decision is not None
    return func, decision


def _tile(
    func: Func,
    loop: LoopRef,
    n: int,
    most: int,
    name: str,
    decision: tuple[int, ...] | None,
) -> Hole:
    asked = f"sample a tile of loop `{named(func, loop)}`"
    node = loop_of(find_loop(func, loop, asked))
    extent = extent_of(node)
    if extent is None or n < 1 or most < 1:
        why = "the loop's extent is not a constant" if extent is None else "the tile is empty"
        hint = "a loop of constant extent, and at least one inner loop of at least one iteration"
        raise ScheduleError(asked, why, "", hint, func, (node,))
    top = max(1, min(most, extent))
    sizes = {d for d in range(1, top + 1) if extent % d == 0} | {1 << k for k in range(20)}
    domain = tuple(sorted(s for s in sizes if s <= top))
    first: list[Choice] = []
    left = max(1, extent)
    for _ in range(n):
        first.insert(0, max(s for s in domain if s <= min(DECENT, left)))
        left //= int(first[0])
    names = (name,) if n == 1 else tuple(f"{name}_{k}" for k in range(n))
    return Hole(names, (domain,) * n, decision or tuple(first), max(1, extent))


@sampling(_tile)
def sample_tile(
    func: Func,
    loop: LoopRef,
    n: int = 1,
    most: int = MOST,
    name: str = "",
    decision: tuple[int, ...] | None = None,
) -> tuple[Func, tuple[int, ...]]:
    """Return extents for ``n`` inner loops of a loop, outer to inner; the tuner decides.

    ``sch.split(loop, [None, *sch.sample_tile(loop, 2)])`` splits it into three. Each is a
    divisor of the extent or a power of two, at most ``most``; their product is at most the extent.

    Refused:
        - a loop without a constant extent, and fewer than one inner loop
        - a decision that is not one of the options
        - a name that another hole of the schedule has

    Example:
        sch = product()
        rows = sch.sample_tile("i", 1, 4, "rows")
        sch.split("i", [None, *rows])
    """
    assert decision is not None
    return func, decision
