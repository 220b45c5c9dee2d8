"""``lower``: a model of any kind, ready to be shown, tuned and compiled for a target.

The names are those of JAX's ahead-of-time interface: ``jax.jit(f).lower(x).compile()``. ``build``,
``tune``, ``jit`` and the commands are thin over ``Lowered``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..codegen import driver
from ..codegen.driver.options import BuildOptions
from ..codegen.driver.stages import check_stage, stage_text
from ..ir.errors import ArgumentError
from ..ir.frontends.imported import Imported
from ..ir.frontends.load import as_model, is_one_file
from ..ir.frontends.load import imported as imported_model
from ..ir.frontends.registry import Shapes
from ..ir.hlo.shape_text import show_shape
from ..ir.target import Target
from .recipe import BuildRecipe, Constants, GraphLike, ImportOptions

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ..codegen.driver.schedules import Schedules
    from ..codegen.runtime.executable import Executable
    from .fleet.worker_pool import WorkerPool
    from .tuner.progress import Listener, TuneResult
    from .tuner.session import Subject


class Lowered(BuildRecipe):
    """A model for a target, to be shown, tuned and compiled; made by ``lower``."""

    def __repr__(self) -> str:
        """Name the model, its inputs and results, and the target."""
        entry = self.imported.module.entry
        inputs = self.imported.inputs or tuple(p.name for p in entry.parameters)
        taken = zip(inputs, entry.parameters, strict=False)
        given = ", ".join(f"{name}: {show_shape(p.shape)}" for name, p in taken)
        result = show_shape(entry.root.shape)
        return f"<Lowered {self.name}({given}) -> {result} for {self.target.spec}>"

    def compile(
        self,
        log: str | os.PathLike[str] | None = None,
        timings: dict[str, float] | None = None,
        cache: bool = True,
    ) -> Executable:
        """Compile the model with the best schedules of a log; arguments as for ``build``.

        The executable takes the arguments of the model's own call, or their leaves, and gives its
        own tree: see ``Executable.__call__``. Where parameters are frozen by ``constants``, or
        weights are arguments, it takes the leaves that are left.
        """
        from .compiled import built, warn_of_weights
        from .log.best import warn_of_use  # a graph is shown without

        spent: dict[str, float] = {} if timings is None else timings
        exe = built(self, self.schedules(log), spent, cache)
        warn_of_weights(exe)
        warn_of_use(exe, log, self.target)
        return self._as_called(exe)

    def tune(
        self,
        trials: int = 500,
        seconds: float | None = None,
        log: str | os.PathLike[str] | None = None,
        seed: int = 0,
        resume: bool = True,
        workers: int | None = None,
        strategy: str = "native",
        progress: Listener | None = None,
        simulate_cost: bool = False,
        executor: Executor | WorkerPool | None = None,
    ) -> TuneResult:
        """Search for faster schedules of the model's groups, and log them; see ``tune``."""
        from .tuner.session import TuningSession  # the tuner is no part of a build

        session = TuningSession(
            target=self.target,
            trials=trials,
            seconds=seconds,
            log=log,
            seed=seed,
            resume=resume,
            workers=workers,
            strategy=strategy,
            progress=progress,
            simulate_cost=simulate_cost,
            executor=executor,
        )
        return session.run(self.subject)

    def subject(self) -> Subject:
        """Return the tasks of the model, and how the whole is built."""
        from .tasks.extract import extract
        from .tuner.session import Subject

        builder = self.prepared()
        tasks = extract(builder.optimized, self.target, groups=builder.groups)
        return Subject(self.name, tasks, builder)

    def prepared(self) -> driver.PreparedModule:
        """Return the model's graph after its passes, cut into groups."""
        return driver.PreparedModule(self.imported.module, self.options, self.frozen)

    def as_text(
        self,
        stage: str = "hlo",
        group: str | None = None,
        log: str | os.PathLike[str] | None = None,
    ) -> str:
        """Return the text of a stage of compilation, as ``nestwright show`` prints it.

        ``group`` selects one of the groups by its name or the start of its key. ``ArgumentError``
        for a stage or group that does not exist.
        """
        check_stage(stage, self.target, group)  # before a large model is read
        return stage_text(
            self.imported.module,
            self.options,
            stage,
            group,
            self.schedules(log),
            constants=self.frozen,
        )

    def cost_analysis(self) -> dict[str, float]:
        """Return the work of one run, with default schedules: see ``Executable.cost_analysis``."""
        return self._plain.cost_analysis()

    def memory_analysis(self) -> dict[str, int]:
        """Return the bytes of arguments, results, arena and code, with default schedules."""
        return self._plain.memory_analysis()

    def _as_called(self, exe: Executable) -> Executable:
        """Return the executable for calls with the model's own trees, if it has such."""
        if not isinstance(self.model, Imported) and is_one_file(self.model):
            return exe  # of flat parameters and results, and need not be read
        model = self.imported
        if model.flatten is None and model.rebuild is None:
            return exe
        from ..codegen.runtime.call_tree import CallTree

        whole = not self.constants and (self.freeze or not model.weights)
        flatten = model.flatten if whole else None
        return exe.called_as(CallTree(flatten, model.rebuild, model.leaves_first))

    @cached_property
    def _plain(self) -> Executable:
        return self.compile()

    def schedules(self, log: str | os.PathLike[str] | None) -> Schedules:
        """Return the best schedules of a log for the target; none without a log."""
        from ..codegen.driver.schedules import Schedules

        if log is None:
            return Schedules({})
        from .log.best import best_traces

        return best_traces(log, self.target)


def lower(
    model: GraphLike,
    *example: Any,
    target: str | Target = "cpu",
    shapes: Shapes | None = None,
    freeze: bool = True,
    constants: Constants | None = None,
    excess_precision: bool = True,
    weights: str | None = None,
    accuracy: float | None = None,
    denormals: str | None = None,
    fallback: str | None = None,
    checks: bool = False,
) -> Lowered:
    """Return a model as one object through all stages: shown, tuned, compiled.

    ``model`` is a path, an ``HloModule`` or an object of a framework (``ir.frontends.registry`` has
    them), ``example`` the arguments that a function or module is lowered for: arrays, pytrees of
    them, or anything with ``shape`` and ``dtype``. ``shapes`` are the sizes of inputs that a file
    leaves open, by name or place: ``{"input": (1, 3, 224, 224)}``. ``freeze`` makes constants of
    the weights that the model carries, and ``constants`` of further parameters, by number or name.
    ``excess_precision``, ``weights``, ``accuracy``, ``denormals``, ``fallback`` and ``checks`` are
    as for ``build``.
    """
    options = BuildOptions.given(target, excess_precision, weights, accuracy, denormals, fallback)
    return lower_for(options, ImportOptions(shapes, constants, freeze, checks), model, *example)


def lower_for(
    options: BuildOptions, importing: ImportOptions, model: GraphLike, *example: Any
) -> Lowered:
    """Return a model as ``lower`` does, with its options as values."""
    shapes, constants = importing.shapes, importing.constants
    if constants is not None and not isinstance(constants, Mapping):
        raise ArgumentError(
            f"constants of type {type(constants).__name__}",
            "they go by the parameters' numbers or names",
            hint="constants={1: weights}",
        )
    known = as_model(model, example or None, shapes, constants)
    if not isinstance(known, Imported) and (shapes or (constants and not is_one_file(known))):
        known = imported_model(known, None, shapes, constants)
    if importing.checks:
        whole = known if isinstance(known, Imported) else imported_model(known, None, shapes)
        known = whole.with_checks()
    return Lowered(known, options, constants or {}, importing.freeze)


def as_arguments(example: Any) -> tuple[Any, ...]:
    """Return example arguments as a tuple: ``example=`` may be one argument, or several."""
    if example is None:
        return ()
    return tuple(example) if isinstance(example, tuple | list) else (example,)
