"""The sketches of a function for a target, and its default schedule without tuning."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from ...ir.loop.nodes import Func
from ...ir.target import Target, Work
from ..language.schedule import Schedule
from ..space.analyze import BlockInfo, blocks_of
from ..space.registry import Family
from ..space.space import Sketch, first_fit
from .sampled import rule_sketches

FAMILIES: Mapping[Work, str] = MappingProxyType({"threads": ".cpu", "launches": ".gpu"})
"""The folder whose ``generate.FAMILY`` has the sketches for a target, by how it spreads work."""


def generate(func: Func, target: Target) -> tuple[Sketch, ...]:
    """Return the sketches of a function in default order, the preferred one first.

    Deterministic: the same function and target give the same sketches, decisions and defaults.
    Rules that a user registered come last.
    """
    family = _family(target)
    own = (*family.sketches(func, target), *family.spare(func, target))
    return (*own, *rule_sketches(func, target, own[0].cost(own[0].default)))


def default_schedule(func: Func, target: Target) -> Schedule:
    """Return the rule-based schedule: the first sketch that applies, with its default choices.

    Never fails: if no sketch applies, each block gets the fallback schedule of the target's family,
    or stays as it is if a primitive refuses that.
    """
    family = _family(target)
    schedule = first_fit(family.sketches(func, target), func)
    return _by_block(func, target, family) if schedule is None else schedule


def _by_block(func: Func, target: Target, family: Family) -> Schedule:
    schedule = Schedule(func)
    for info in blocks_of(func):

        def fallback(sch: Schedule, info: BlockInfo = info) -> None:
            family.fallback(sch, info, target)

        schedule.attempt(fallback)
    return schedule


def require_finished(func: Func, target: Target) -> None:
    """Raise ``ScheduleError`` if a schedule is incomplete or exceeds the target's limits."""
    _family(target).require(func, target)


def _family(target: Target) -> Family:
    """Return the sketches for a target; those for others are not imported."""
    family: Family = import_module(f"{FAMILIES[target.row.work]}.generate", __package__).FAMILY
    return family
