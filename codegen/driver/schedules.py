"""Which schedule each group of a model gets: its own best, or what won for the model as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from ...schedule.language.trace import Trace


Picks: TypeAlias = "Mapping[str, Trace | None]"
T = TypeVar("T")


class Schedules(Mapping[str, "Trace"]):
    """The best trace of each group by its key, and what whole models were found to run best with.

    As a mapping it gives each group its own best. ``models`` are the outcomes of races of whole
    models, oldest first: a trace for each of the model's groups, None for the default schedule.
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
        """The traces for a model with these groups.

        What won for the model as a whole takes precedence; ``fitting`` says how it is recognized.
        """
        picks: Picks = fitting(self.models, keys)
        found = {**self._groups, **picks}
        return {key: trace for key, trace in found.items() if trace is not None and key in keys}


def fitting(models: Sequence[Mapping[str, T]], keys: Collection[str]) -> Mapping[str, T]:
    """Of the outcomes of races of whole models, oldest first, that of the model with these groups.

    That is one all of whose groups are there, of several the largest, then the latest.
    """
    found = [m for m in models if m.keys() <= set(keys)]
    return max(reversed(found), key=len, default={})


def for_groups(schedules: Mapping[str, Trace], keys: Collection[str]) -> Mapping[str, Trace]:
    """The traces of a mapping for a model with these groups."""
    return schedules.of(keys) if isinstance(schedules, Schedules) else schedules


def identity(schedules: Mapping[str, Trace]) -> dict[str, object]:
    """What decides about the code of any model built with these schedules, as JSON."""
    found: dict[str, object] = {name: trace.to_json() for name, trace in schedules.items()}
    if isinstance(schedules, Schedules) and schedules.models:
        found["models"] = [
            {key: None if trace is None else trace.to_json() for key, trace in picks.items()}
            for picks in schedules.models
        ]
    return found
