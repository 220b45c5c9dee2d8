"""The text of a model's groups and plan: the stages from ``fused`` on."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ...ir.errors import ArgumentError
from ...ir.hlo.fuse.fusion import Group, show_fusion
from ...ir.hlo.layouts import Orders, entry_orders
from ...ir.hlo.nodes import HloModule
from ...ir.loop.nodes import AxisKind, Block, Func
from ...ir.loop.printer import buffer_type
from ...ir.loop.printer import show as show_loops
from ...ir.loop.visit import walk
from ...ir.target import Target
from ...schedule.language.trace import Trace
from ..plan.compiled import Compiled
from ..plan.groups import Groups, fuse_module, symbol
from ..plan.nodes import show as show_plan
from ..plan.sequence import make_plan
from ..plan.streaming import streamed_outputs
from ..runtime.packing import packers
from ..targets.registry import backend, lower
from .compile_group import apply, loops, pack_code, with_streams, workspace_bytes
from .horizontal_fusion import fused_kernels
from .options import BuildOptions
from .prepack import split_packs
from .schedules import for_groups


def compiled_text(
    module: HloModule,
    frozen: HloModule,
    options: BuildOptions,
    stage: str,
    group: str | None,
    schedules: Mapping[str, Trace],
) -> str:
    """Return the text of an optimized module at a stage from ``fused`` on.

    ``frozen`` is the module before its passes; ``group`` selects one group.
    """
    target = options.target
    groups = fuse_module(module, options.excess_precision, target)
    traces = for_groups(schedules, groups.distinct)
    streamed = streamed_outputs(groups, target)
    match stage:
        case "fused":
            return fused_text(groups)
        case "plan":
            return plan_text(module, groups, target, traces, entry_orders(frozen))
        case _:
            parts = [
                titled(
                    found,
                    key,
                    _group(found, key, stage, target, traces.get(key), streamed.get(key, ())),
                )
                for key, found in _chosen(groups, group)
            ]
            return "\n".join(parts)


def fused_text(groups: Groups) -> str:
    """Return every computation's groups, and the edges between them."""
    return "\n".join(map(show_fusion, groups.fusions.values()))


def titled(group: Group, key: str, text: str) -> str:
    """Return a group's text under its heading."""
    return f"# {group.name}  {key}\n{text}"


def _chosen(groups: Groups, wanted: str | None) -> Iterator[tuple[str, Group]]:
    """Yield the distinct groups, or those that ``wanted`` names."""
    if wanted is None:
        yield from groups.distinct.items()
        return
    if not isinstance(wanted, str):
        raise ArgumentError(f"group={wanted!r:.60}", "a group goes by its name or its key, as text")
    keys = {key for g, key in groups.keys.items() if g.name == wanted or key.startswith(wanted)}
    if not keys:
        names = [g.name for g in groups.keys]
        near = difflib.get_close_matches(wanted, names, n=3)
        raise ArgumentError(
            f"no group {wanted!r}",
            hint=f"groups here: {', '.join(near or names[:8])}; stage fused lists them all",
        )
    for key in groups.distinct:
        if key in keys:
            yield key, groups.distinct[key]


def _group(
    group: Group,
    key: str,
    stage: str,
    target: Target,
    trace: Trace | None,
    streamed: Sequence[int],
) -> str:
    steps = group_stages(group, key, target, trace, streamed)
    return next(text() for name, text in steps if name == stage)


def group_stages(
    group: Group, key: str, target: Target, trace: Trace | None, streamed: Sequence[int] = ()
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield a group's stages from ``te`` to ``asm`` with a function that prints each, lazily."""
    func, _ = loops(group.computation, symbol(key), trace, target)
    yield "te", partial(tensor_text, func)
    yield "loop", partial(show_loops, func)
    scheduled = with_streams(apply(func, target, trace).func, streamed)
    yield "scheduled", partial(show_loops, scheduled)
    flat = lower(split_packs(scheduled)[0], target)
    yield "flat", partial(show_loops, flat)
    text = backend(target).emit(flat, target)
    yield "llvm", lambda: text
    yield from backend(target).stages(text, target)


def tensor_text(func: Func) -> str:
    """Return a loop function in default order as tensor expressions: per block, its axes
    and rule.
    """
    inputs = ", ".join(f"{b.name}: {buffer_type(b)}" for b in func.params[: -func.outputs])
    outputs = ", ".join(f"{b.name}: {buffer_type(b)}" for b in func.params[-func.outputs :])
    lines = [f"{func.name}({inputs}) -> {outputs}"]
    for block in walk(func.body):
        if isinstance(block, Block):
            axes = [
                f"{'reduce ' if a.kind is AxisKind.REDUCE else ''}{a.var.name} < {a.extent}"
                for a in block.axes
            ]
            lines.append(f"  {block.name}: for all {', '.join(axes) or 'nothing'}")
            parts = ((block.init, "start  "), (block.body, ""))
            lines += [
                f"    {mark}{line}"
                for part, mark in parts
                if part is not None
                for line in show_loops(part).rstrip().split("\n")
            ]
    return "\n".join(lines) + "\n"


def plan_text(
    module: HloModule,
    groups: Groups,
    target: Target,
    traces: Mapping[str, Trace],
    orders: Orders,
) -> str:
    """Return the plan, made without compiling kernels: lowering determines the workspace of each.

    Packs are compiled, since their results are part of the plan.
    """
    found: dict[str, Compiled] = {}
    wanted = {key: group.computation for key, group in groups.distinct.items()}
    for key, computation in (wanted | dict(groups.extra)).items():
        trace = traces.get(key)
        func, sharing = loops(computation, symbol(key), trace, target)
        main, packs = split_packs(apply(func, target, trace).func)
        size = workspace_bytes(lower(main, target))
        made = packers(tuple(map(pack_code, packs)))
        found[key] = Compiled(symbol(key), key, size, sharing, made)
    fused = fused_kernels(groups, target, traces, {})
    space = {key: made.workspace for key, made in found.items()}
    fusion = fused.fusion(space) if fused is not None else None
    align = backend(target).alignment
    plan, *_ = make_plan(module, groups, found.__getitem__, orders, align, fusion)
    return show_plan(plan)
