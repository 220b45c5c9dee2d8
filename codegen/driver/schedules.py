"""Select the schedule of each group of a model: its own best, or the winner for the whole model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from ...schedule.language.trace import Trace


Picks: TypeAlias = "Mapping[str, Trace | None]"
T = TypeVar("T")


class Schedules(Mapping[str, "Trace"]):
    """The best trace of each group by its key, and the combinations that won for whole models.

    As a mapping it gives each group its own best. ``models`` are the winners of whole-model races,
    oldest first: a trace for each of the model's groups, None for the default schedule.
    """

    def __init__(self, groups: Mapping[str, Trace], models: Sequence[Picks] = ()) -> None:
        self._groups = dict(groups)
        self.models = tuple(models)

    def __getitem__(self, key: str) -> Trace:
        return self._groups[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def of(self, keys: Collection[str]) -> Mapping[str, Trace]:
        """Return the traces for a model with these groups.

        The winner for the model as a whole takes precedence; ``fitting`` recognizes it.
        """
        picks: Picks = fitting(self.models, keys)
        found = {**self._groups, **picks}
        return {key: trace for key, trace in found.items() if trace is not None and key in keys}


def fitting(models: Sequence[Mapping[str, T]], keys: Collection[str]) -> Mapping[str, T]:
    """Return the winner of a whole-model race for the model with these groups.

    That is an entry of ``models`` all of whose groups are in ``keys``; of several the largest, then
    the latest.
    """
    found = [m for m in models if m.keys() <= set(keys)]
    return max(reversed(found), key=len, default={})


def for_groups(schedules: Mapping[str, Trace], keys: Collection[str]) -> Mapping[str, Trace]:
    """Return the traces of a mapping for a model with these groups."""
    return schedules.of(keys) if isinstance(schedules, Schedules) else schedules


def identity(schedules: Mapping[str, Trace]) -> dict[str, object]:
    """Return, as JSON, everything about these schedules that determines the code of a model."""
    found: dict[str, object] = {
        name: [trace.accuracy, trace.to_json()] for name, trace in schedules.items()
    }
    if isinstance(schedules, Schedules) and schedules.models:
        found["models"] = [
            {k: None if t is None else [t.accuracy, t.to_json()] for k, t in picks.items()}
            for picks in schedules.models
        ]
    return found
