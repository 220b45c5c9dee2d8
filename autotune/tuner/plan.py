"""The plan of a tuning run: model, tasks, budget, and the search strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...ir.errors import UnsupportedError
from ...ir.target import Target
from ..log.journal import stamped
from ..log.records import DeviceRecord, Json, Model, device_id, estimates_id
from ..search.evolution import Evolution
from ..search.random import RandomSearch
from ..search.space import Point, Space
from ..search.strategy import Strategy
from ..tasks.extract import Task

STRATEGIES = "use native, prior, random or optuna:tpe"


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """The model, target, tasks and budget of a run. With ``estimate`` nothing is measured.

    ``notes`` are what the user should know from the start, ``seeds`` the points of a task's space
    to try after the default schedule, by its key. ``machine`` is the class of the machines that
    measure ("": unknown), ``peaks`` are theirs, as of ``floor.least_seconds``, if this machine is
    not one of them.
    """

    model: str
    target: Target
    tasks: tuple[Task, ...]
    trials: int
    seconds: float | None = None
    seed: int = 0
    strategy: str = "native"
    workers: int | None = None
    tool: tuple[tuple[str, str], ...] = ()
    estimate: bool = False
    notes: tuple[str, ...] = ()
    seeds: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    machine: str = ""
    peaks: tuple[float, float] | None = None

    @property
    def device(self) -> str:
        """The device id of the trials."""
        return estimates_id(self.target) if self.estimate else device_id(self.target)

    def device_record(self) -> DeviceRecord:
        """Return the log record of the device: its specification and facts about the machine."""
        target = self.target
        facts: dict[str, Json] = {
            "cpu": target.cpu,
            "vector_bits": target.vector_bits,
            "cores": target.cores,
            "threads": target.threads,
            "l1": target.l1,
            "l2": target.l2,
            "l3": target.l3,
        }
        if target.accuracy:
            facts["accuracy"] = target.accuracy
        return DeviceRecord(self.device, target.spec, facts)

    def model_record(self) -> Model:
        """Return the log record of the model and its weighted tasks."""
        tasks = tuple((t.key, t.weight) for t in self.tasks)
        return stamped(Model("", self.model, self.device, tasks))


def make_strategy(name: str, space: Space, seed: int) -> Strategy:
    """Return a strategy by name: native, prior, random, or optuna: with the name of a sampler.

    ``prior`` is the native search without a cost model: by the analytic estimates alone.
    """
    match name.partition(":"):
        case ("native" | "prior", "", ""):
            return Evolution(space, seed)
        case ("random", "", ""):
            return RandomSearch(space, seed)
        case ("optuna", _, kind):
            try:
                from ..search.optuna_strategy import OptunaSearch  # an extra
            except ImportError:
                raise UnsupportedError(
                    f"strategy {name}",
                    "optuna is not installed",
                    hint="pip install 'nestwright[optuna]'",
                ) from None
            return OptunaSearch(space, seed, kind or "tpe")
        case _:
            raise UnsupportedError(
                f"strategy {name}",
                "no such strategy",
                hint=STRATEGIES,
            )
