"""The texts of a model's groups at every stage, for a page that shows them on demand."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ...codegen.driver import PreparedModule
from ...codegen.driver.group_stages import group_stages
from ...codegen.driver.schedules import for_groups
from ...codegen.driver.stages import STAGES, WHOLE, check_stage
from ...codegen.plan.streaming import streamed_outputs
from ...ir.errors import ArgumentError, NestwrightError
from ...ir.hlo.fuse.fusion import Group
from ...ir.hlo.rewrite import reachable
from ...ir.hlo.sources import Sources
from ...ir.hlo.text.printer import show_computation
from ...ir.target import Target
from ...schedule.language.trace import Trace

HLO = "hlo"
"""The stage of a group's own instructions, which comes before ``te``."""


def stages_of(target: Target, wanted: str | None = None) -> tuple[str, ...]:
    """Return the stages that groups have for a target, or those of a list such as ``te,asm``.

    ``ArgumentError`` for a stage that groups do not have.
    """
    if wanted is None:
        return tuple(s for s in (HLO, *STAGES) if s not in WHOLE or s == HLO)
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:
        if name in WHOLE and name != HLO:
            raise ArgumentError(f"--stages {wanted}", f"stage {name} is of the whole model")
        check_stage(name, target)
    return tuple(names)


def group_texts(
    prepared: PreparedModule, schedules: Mapping[str, Trace], stages: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return the texts of each distinct group by key and stage, in order.

    A stage that a group does not reach says why.
    """
    groups, target = prepared.groups, prepared.target
    traces = for_groups(schedules, groups.distinct)
    streamed = streamed_outputs(groups, target)
    sources = Sources(prepared.module)
    return {
        key: dict(_texts(g, key, target, traces.get(key), streamed.get(key, ()), stages, sources))
        for key, g in groups.distinct.items()
    }


def _texts(
    group: Group,
    key: str,
    target: Target,
    trace: Trace | None,
    streamed: Collection[int],
    stages: Collection[str],
    sources: Sources,
) -> Iterator[tuple[str, str]]:
    if HLO in stages:
        yield HLO, _members(group, sources)
    if trace is not None and trace.library:
        yield "library", f"computed by the library function {trace.library}, as the log says\n"
        return
    if not any(s != HLO for s in stages):
        return
    reached = HLO
    try:
        for reached, text in group_stages(group, key, target, trace, tuple(streamed)):
            if reached in stages:
                yield reached, text()
    except NestwrightError as error:
        yield "refused", f"no stage after {reached}: {error}\n"


def _members(group: Group, sources: Sources) -> str:
    """Return a group's computation, those that it calls, and where its instructions come from."""
    called = [c for c in reachable(group.computation) if c is not group.computation]
    parts = [show_computation(c) for c in (*called, group.computation)]
    places = {i.name: place for i in group.members if (place := sources.of(i))}
    if places:
        width = max(map(len, places))
        parts.append("\n".join(f"// {name:{width}}  {p}" for name, p in places.items()))
    return "\n\n".join(parts) + "\n"
