"""Facts of a model before it is read: its family, and sizes of inputs that it leaves open."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import ArgumentError
from ..hlo.nodes import HloModule
from ..lazy import resolve
from . import registry
from .imported import Imported
from .load import imported, recognized
from .registry import FileFrontend, ObjectFrontend, Shapes

Declared: TypeAlias = Mapping[str, tuple[int | None, ...]]
"""The sizes of a model's inputs by name; None for one that the model leaves open."""


def _row(model: Any) -> FileFrontend | ObjectFrontend | None:
    if isinstance(model, str | os.PathLike):
        return recognized(Path(model))
    return next((r for r in registry.OBJECTS if r.recognizes(model)), None)


def family(model: Any) -> str:
    """Return the form that other runtimes take a model in: hlo, onnx or torch; "" if none does.

    Errors as for reading a path.
    """
    if isinstance(model, HloModule | Imported):
        return "hlo"
    row = _row(model)
    return "" if row is None else row.family


def declared_inputs(model: Any) -> Declared:
    """Return the sizes that a model declares; empty where its format leaves none open.

    Errors as for reading it.
    """
    row = None if isinstance(model, HloModule | Imported) else _row(model)
    if row is None or not row.declares:
        return {}
    found: Callable[[Any], Declared] = resolve(row.declares, __package__)
    return found(Path(model) if isinstance(row, FileFrontend) else model)


def with_batch(model: Any, batch: int, shapes: Shapes | None, example: Any = None) -> Imported:
    """Return a model for a batch: the first size of every input that leaves it open.

    ``shapes`` settle other open sizes, and those of the inputs that they name. ``ArgumentError``
    where no first size is open, unless the model's inputs all have this one.
    """
    given = dict(shapes or {})
    settled = dict(given)
    for n, (name, sizes) in enumerate(declared_inputs(model).items()):
        which = name if name in given else n
        if sizes and sizes[0] is None:
            rest = given.get(which, sizes)[1:]
            settled[which] = (batch, *rest)
    if settled != given:
        return imported(model, None, settled)
    known = imported(model, example, shapes)
    inputs = known.module.entry.parameters[: len(known.inputs) or None]
    firsts = {p.shape.dims[0] for p in inputs if hasattr(p.shape, "dims") and p.shape.dims}
    if firsts == {batch}:
        return known
    found = ", ".join(map(str, sorted(firsts))) or "none"
    raise ArgumentError(
        f"batch {batch} of {known.module.name}",
        f"the first sizes of its inputs are fixed ({found})",
        hint="export the model for this batch, or with its first size left open",
    )
