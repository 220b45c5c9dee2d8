"""`nestwright run` for inputs of open sizes: ``--shape input=1..64x3 --rule buckets``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...autotune.lowered import lower_for
from ...autotune.recipe import ImportOptions
from ...autotune.rules import OpenShapes, OpenSize, SizeRule
from ...autotune.sized import SizedModel
from ...codegen.driver.options import BuildOptions
from ...codegen.plan.signature import ArraySpec
from ...ir.dtypes import to_numpy
from ...ir.errors import ArgumentError
from ...ir.hlo.nodes import HloModule
from ...ir.hlo.passes.prepare.freeze_parameters import freeze
from .arrays import in_order

if TYPE_CHECKING:
    from ...autotune.lowered import Lowered
    from ...codegen.runtime.executable import Executable
    from .arrays import Array


def prepare_open(
    model: str,
    arrays: Mapping[str, Array] | None,
    shapes: OpenShapes,
    rule: SizeRule,
    log: str | None,
    options: BuildOptions,
    importing: ImportOptions,
) -> tuple[Executable, Callable[[], HloModule]]:
    """Return the executable for the sizes of the arguments, and its graph of these sizes.

    Without arguments the sizes are the largest of the ranges. ``ArgumentError`` for sizes that are
    not in them, ``UnsupportedError`` for a model that the rule cannot pad.
    """
    largest = {w: tuple(_largest(n) for n in sizes) for w, sizes in shapes.items()}
    lowered = lower_for(options, replace(importing, shapes=largest), model)
    specs = _inputs(lowered)
    given = (
        [np.broadcast_to(np.zeros((), to_numpy(s.dtype)), s.dims) for s in specs]
        if arrays is None
        else in_order(arrays, specs)
    )
    if len(given) != len(specs):
        names = ", ".join(s.name for s in specs)
        why = f"it has the inputs {names}, and there are {len(given)} arrays"
        raise ArgumentError(f"cannot run {model}", why, hint="--random SEED draws all inputs")
    by_name = {s.name: array for s, array in zip(specs, given, strict=True)}
    open_sizes = {which: _settled(lowered, which, sizes) for which, sizes in shapes.items()}
    sized = SizedModel(model, open_sizes, rule, partial(lower_for, options, importing), log)
    of_these = replace(importing, shapes={name: a.shape for name, a in by_name.items()})
    return sized.executable(**by_name), partial(_graph, options, of_these, model)


def _largest(size: int | range | None) -> int | None:
    return size[-1] if isinstance(size, range) else size


def _settled(lowered: Lowered, which: str | int, sizes: Sequence[OpenSize]) -> tuple[OpenSize, ...]:
    """Return the sizes of an input with those that the model knows."""
    number = lowered.imported.number(which)
    assert isinstance(number, int)  # the model was read for these inputs
    known = lowered.imported.module.entry.parameters[number].array.dims
    return tuple(k if n is None else n for n, k in zip(sizes, known, strict=True))


def _inputs(lowered: Lowered) -> list[ArraySpec]:
    """Return the inputs of a model, without those that are frozen."""
    model = lowered.imported
    frozen = {model.number(which) for which in lowered.frozen}
    left = [p for n, p in enumerate(model.module.entry.parameters) if n not in frozen]
    names = model.names(lowered.frozen)
    return [
        ArraySpec(name, p.array.dtype, p.array.dims) for name, p in zip(names, left, strict=True)
    ]


def _graph(options: BuildOptions, importing: ImportOptions, model: str) -> HloModule:
    lowered = lower_for(options, importing, model)
    return freeze(lowered.imported.module, lowered.frozen)
