"""Imported models: a graph, the model's own names of its inputs and outputs, and its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..arrays import Array
from ..errors import ArgumentError
from ..hlo.nodes import HloModule, Shape
from ..hlo.shape_text import show_shape

Flatten: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any] | None]
"""From the arguments of a model's own call, by place and by name, to its flat inputs; None for
arguments of another structure."""

Rebuild: TypeAlias = Callable[[tuple[Array, ...]], Any]
"""From flat results to what the model's own call returns."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Imported:
    """A model of a file or of another framework.

    ``module`` has the model's inputs as its first parameters and then the weights that the model
    carries; ``weights`` are their arrays by parameter number. ``inputs`` and ``outputs`` are the
    model's own names, one for each input and each result; empty where the module's names serve.
    ``rebuild`` makes what the model's own call returns of the flat results; None where that is the
    array or tuple of the module's root. ``flatten`` makes the flat inputs of the arguments of the
    model's own call, those by place and those by name, or returns None if they have another
    structure than the model was read for; it is None where its own call takes the inputs as they
    are. ``leaves_first`` is true where that is so for arrays of the right types, and ``flatten``
    only converts others. ``checked`` gives the model with checks of values, whose failures are
    errors of a run; None where a front-end knows of none.
    """

    module: HloModule
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    weights: Mapping[int, Array] = field(default_factory=dict)
    rebuild: Rebuild | None = None
    flatten: Flatten | None = None
    leaves_first: bool = False
    checked: Callable[[], Imported] | None = None

    def with_checks(self) -> Imported:
        """Return the model with checks; ``ArgumentError`` where its front-end knows of none."""
        if self.checked is None:
            raise ArgumentError(
                f"checks=True for {self.module.name}",
                "its operations are defined for all values, or their errors are not known",
                hint="checks are those of PyTorch's operators, in modules and exported programs",
            )
        return self.checked()

    def number(self, which: int | str) -> int | str:
        """Return the number of the parameter with this name or number; else what was given."""
        return self._numbers([which])[which]

    def _numbers(self, given: Iterable[int | str]) -> dict[int | str, int | str]:
        """Return ``number`` of each; of equal names the first parameter's."""
        places: dict[str, int] = {}
        for n, name in enumerate(self.names()):
            places.setdefault(name, n)

        def number(which: int | str) -> int | str:
            if not isinstance(which, str):
                return which
            return places.get(which, int(which) if which.isdecimal() else which)

        return {which: number(which) for which in given}

    def constants(self, given: Mapping[int | str, Any], freeze: bool) -> dict[int | str, Any]:
        """Return the arrays to freeze: those given, and with ``freeze`` the model's weights.

        ``ArgumentError`` for a parameter that is given twice, by its name and by its number.
        """
        numbers = self._numbers(given)
        found: dict[int | str, Any] = {}
        for which, array in given.items():
            if (number := numbers[which]) in found:
                why = f"{which!r} is parameter {number}, which constants= has already"
                raise ArgumentError("a parameter is frozen twice", why)
            found[number] = array
        if freeze:
            found |= {n: array for n, array in self.weights.items() if n not in found}
        return found

    def names(self, frozen: Iterable[int | str] = ()) -> tuple[str, ...]:
        """Return the names of the parameters, without those that are frozen."""
        own = dict(enumerate(self.inputs))
        known = set(self._numbers(frozen).values()) if frozen else set()
        entry = self.module.entry
        found = [own.get(n, p.name) for n, p in enumerate(entry.parameters)]
        return tuple(name for n, name in enumerate(found) if n not in known)


def check_shapes(model: Imported, shapes: Mapping[str | int, Sequence[int | None]]) -> None:
    """Raise ``ArgumentError`` unless the model's inputs have these shapes, by name or place."""
    entry = model.module.entry
    for which, wanted in shapes.items():
        number = model.number(which)
        if not isinstance(number, int) or not 0 <= number < len(entry.parameters):
            known = ", ".join(model.names(model.weights)[:8])
            raise ArgumentError(
                f"there is no input {which!r}", "shapes= names it", hint=f"inputs: {known}"
            )
        shape = entry.parameters[number].shape
        dims = shape.dims if isinstance(shape, Shape) else ()
        fits = len(wanted) == len(dims) and all(
            w is None or w == d for w, d in zip(wanted, dims, strict=True)
        )
        if not fits:
            raise ArgumentError(
                f"input {which!r} cannot have the shape {show_sizes(wanted)}",
                f"the model has {show_shape(shape)} there, and its sizes are fixed",
                hint="export the model for these sizes, or with sizes left open",
            )


def show_sizes(sizes: Sequence[int | None]) -> str:
    """Return sizes as text: ``[1,?,224]``."""
    return f"[{','.join('?' if n is None else str(n) for n in sizes)}]"
