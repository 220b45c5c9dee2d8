"""A model of a sweep with its sizes settled: as our builds take it, and as peers do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...codegen.driver.options import BuildOptions
from ...codegen.driver.oracle import reference
from ...ir.arrays import Array
from ...ir.comparison import leaves
from ...ir.errors import ArgumentError
from ...ir.frontends.declared import family, with_batch
from ...ir.frontends.imported import Imported
from ...ir.frontends.load import imported
from ...ir.frontends.registry import Shapes
from ...ir.hlo import show
from ...ir.hlo.analysis.inputs import random_arguments
from ...ir.hlo.nodes import HloModule, Shape
from ..lowered import as_arguments
from ..recipe import Constants, GraphLike


@dataclass(slots=True)
class BenchModel:
    """A model as it was given and as it was read; ``example`` are arguments of a function.

    ``batch`` is the batch size that was asked for. The interpreter's results are kept.
    """

    model: GraphLike
    known: Imported
    batch: int | None = None
    example: Any = None
    _expected: dict[str, list[Array]] = field(default_factory=dict, init=False)

    @staticmethod
    def read(
        model: GraphLike, batch: int | None, shapes: Shapes | None, example: Any
    ) -> BenchModel:
        """Read a model; errors as for ``build``, and where it does not take the batch."""
        given = example if callable(model) else None
        known = (
            imported(model, given, shapes)
            if batch is None
            else with_batch(model, batch, shapes, given)
        )
        return BenchModel(model, known, batch, given)

    @property
    def name(self) -> str:
        """The name of the model's file, else of its module, by which its default log is found."""
        is_file = isinstance(self.model, str | os.PathLike)
        return name_of(self.model) if is_file else self.known.module.name

    def expected(self, frozen: HloModule, seed: int, options: BuildOptions) -> list[Array]:
        """Return the interpreter's results for seeded arguments; it runs once for each target
        of other arithmetic than the plain one.
        """
        target = options.target
        key = target.spec if target.accuracy or target.flushes else ""
        if key not in self._expected:
            given = random_arguments(frozen.entry, seed)
            with np.errstate(all="ignore"):
                found = reference(frozen, given, options)
            self._expected[key] = [np.asarray(v) for v in leaves(found)]
        return self._expected[key]

    def forms(self, folder: Path) -> dict[str, Path]:
        """Return the files that peers read, by their form; what has no file gets one."""
        form = family(self.model)
        if form != "hlo" and isinstance(self.model, str | os.PathLike):
            return {form: Path(self.model).absolute()} if form else {}
        if form not in _WRITERS:
            return {}
        place = folder / f"model.{form}"
        _WRITERS[form](self, place)
        return {form: place}

    def arguments(
        self, frozen: HloModule, seed: int, constants: Constants, form: str
    ) -> dict[str, Any]:
        """Return the arguments of a peer by name: of HLO all parameters, else the inputs.

        ``constants`` are parameters that are frozen in ours. ``ArgumentError`` for tuples.
        """
        if any(not isinstance(p.shape, Shape) for p in frozen.entry.parameters):
            why = "other runtimes take arrays only"
            raise ArgumentError("a parameter is a tuple", why, self.name, "bench it without peers")
        held = {self.known.number(n): np.asarray(a) for n, a in constants.items()}
        drawn = iter(random_arguments(frozen.entry, seed))
        every = {
            name: held[n] if n in held else next(drawn) for n, name in enumerate(self.known.names())
        }
        if form == "hlo":
            return every
        return {k: v for n, (k, v) in enumerate(every.items()) if n not in held}


def name_of(model: GraphLike) -> str:
    """Return the name of a model before it is read: its file's, or what it calls itself."""
    match model:
        case str() | os.PathLike():
            return Path(model).stem
        case HloModule(name=name):
            return name
        case _:
            return str(getattr(model, "__name__", type(model).__name__))


def _write_hlo(subject: BenchModel, place: Path) -> None:
    place.write_text(show(subject.known.module))


def _write_torch(subject: BenchModel, place: Path) -> None:
    import torch

    model = subject.model
    if isinstance(model, torch.nn.Module):
        model = torch.export.export(model, as_arguments(subject.example))
    torch.export.save(model, str(place))


def _write_onnx(subject: BenchModel, place: Path) -> None:
    import onnx

    onnx.save(subject.model, str(place))


_WRITERS: Mapping[str, Callable[[BenchModel, Path], None]] = {
    "hlo": _write_hlo,
    "torch": _write_torch,
    "onnx": _write_onnx,
}
"""By form: the function that writes a model of this session to a file that peers read."""
