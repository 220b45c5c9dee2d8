"""Compile one group, from HLO to the target's code: the stages from ``te`` to ``asm``, in order."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.errors import NestwrightError
from ...ir.hlo.nodes import Computation
from ...ir.hlo.text import parse
from ...ir.loop.nodes import Func
from ...ir.loop.notes import IN_PLACE, STREAMED, WORKSPACE_BYTES
from ...ir.target import HERE, Target
from ...schedule.excess_error import excess_error
from ...schedule.language.schedule import Schedule
from ...schedule.language.trace import Trace
from ...schedule.sketches.generate import default_schedule, generate
from ...schedule.usable import require_usable
from ...te.from_hlo import lower_group
from ..plan.code.kernel import KernelCode, PackCode, Sharing
from ..plan.sharing import in_place_inputs, without_copies
from ..targets.cpu import toolchain as cpu
from ..targets.registry import backend, lower
from ..targets.timings import timed
from .prepack import Pack, split_packs

OUTDONE = 0.95  # of the plain default's estimate, below which a default that adds an error wins

log = logging.getLogger("nestwright")


@dataclass(frozen=True)
class LoweredGroup:
    """A group as a flat function, before code is made of it.

    ``main`` is its scheduled function without ``packs``; ``traced`` is as in ``KernelCode``.
    """

    main: Func
    flat: Func
    sharing: Sharing
    packs: tuple[Pack, ...]
    traced: bool


def lower_text(
    text: str,
    symbol: str,
    target: Target,
    trace: Trace | None,
    timings: dict[str, float],
    streamed: Sequence[int] = (),
) -> LoweredGroup:
    """Lower a group given as canonical text; arguments and errors as for ``compile_text``."""
    with timed(timings, "te"):
        func, sharing = loops(parse(text).entry, symbol, trace, target)
    with timed(timings, "schedule"):
        replayed = replay(func, target, trace)
        scheduled = default_schedule(func, target) if replayed is None else replayed
    main, packs = split_packs(with_streams(scheduled.func, streamed))
    with timed(timings, "lower"):
        flat = lower(main, target)
    return LoweredGroup(main, flat, sharing, packs, replayed is not None)


def compile_text(
    text: str,
    symbol: str,
    target: Target,
    trace: Trace | None,
    timings: dict[str, float],
    streamed: Sequence[int] = (),
    kept: dict[str, LoweredGroup] | None = None,
) -> KernelCode:
    """Compile a group given as canonical text; its kernel is called ``symbol``.

    ``streamed`` are the outputs that nothing reads soon, by number; ``kept`` gets the group, by
    symbol, if there are none. ``UnsupportedError`` if it cannot be compiled.
    """
    group = lower_text(text, symbol, target, trace, timings, streamed)
    if kept is not None and not streamed:
        kept[symbol] = group
    code = backend(target).compile(group.flat, target, timings)
    with timed(timings, "llvm"):
        packed = tuple(map(pack_code, group.packs))
    sizes, work = buffer_sizes(group.main, group.flat), workspace_bytes(group.flat)
    return KernelCode(code, sizes, work, group.sharing, packed, group.traced)


def with_streams(func: Func, streamed: Sequence[int]) -> Func:
    """Return the function with the note that nothing reads these outputs soon."""
    first = len(func.params) - func.outputs
    return STREAMED.put(func, tuple(first + n for n in streamed)) if streamed else func


def pack_code(pack: Pack) -> PackCode:
    """Compile a pack for the machine that builds, whatever the kernel's own target."""
    host = Target.parse(HERE)
    made = pack.func.params[1]
    size = made.dtype.bytes * math.prod(made.shape)
    code = cpu.compile(backend(host).emit(lower(pack.func, host), host), host)
    return PackCode(pack.index, pack.func.name, size, code)


def workspace_bytes(flat: Func) -> int:
    """Return the bytes of workspace that a flat function's kernel takes."""
    return WORKSPACE_BYTES.of(flat) or 0


def buffer_sizes(func: Func, flat: Func) -> tuple[int, ...]:
    """Return the bytes of every argument of a kernel: those of ``func``, and ``flat``'s
    workspace.
    """
    work = workspace_bytes(flat)
    sizes = (b.dtype.bytes * math.prod(map(int, b.shape)) for b in func.params)
    return (*sizes, work) if work else tuple(sizes)


def loops(
    computation: Computation, symbol: str, trace: Trace | None, target: Target
) -> tuple[Func, Sharing]:
    """Return a group as loops, to be scheduled by ``trace`` or by default.

    Traces are made for the function as ``lower_group`` returns it; by default, copies that only
    start an update in place are left to the caller, who often needs none.
    """
    func = lower_group(computation, symbol, target.vectors)
    in_place = in_place_inputs(computation)
    if in_place:
        return IN_PLACE.put(func, 1), Sharing(in_place)
    return (func, Sharing()) if trace is not None else without_copies(func)


def apply(func: Func, target: Target, trace: Trace | None) -> Schedule:
    """Apply a trace to the function; the default schedule if it does not apply or errs too much."""
    found = replay(func, target, trace)
    return default_schedule(func, target) if found is None else found


def replay(func: Func, target: Target, trace: Trace | None) -> Schedule | None:
    """Return the function scheduled by a trace; None, which is logged, if that does not apply."""
    if trace is None:
        return None
    if outdone(func, target, trace):
        return None
    try:
        schedule = trace.replay(func)
        require_usable(schedule.func, target)
    except NestwrightError as error:
        log.warning("%s: its schedule no longer applies: %s", func.name, error)
        return None
    return schedule


def outdone(func: Func, target: Target, trace: Trace) -> bool:
    """True if the default schedule saves arithmetic by an error that the trace's tuning forbade.

    It has to be estimated clearly faster than the default without.
    """
    if trace.accuracy >= target.accuracy or trace.library:
        return False
    first, *others = generate(func, target)
    plain = next((s for s in others if s.share == 1.0), None)
    if first.share == 1.0 or plain is None:
        return False
    if first.cost(first.default) > OUTDONE * plain.cost(plain.default):
        return False
    return excess_error(default_schedule(func, target).func) > trace.accuracy
