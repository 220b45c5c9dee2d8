"""A model, how it is read, and the options of its build: all that determines what is compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from ..codegen.driver.options import BuildOptions, switch
from ..ir.frontends.imported import Imported
from ..ir.frontends.load import imported as imported_model
from ..ir.frontends.registry import Shapes
from ..ir.target import Target

GraphLike: TypeAlias = Any
"""A path, an ``HloModule``, or an object that a row of ``ir.frontends.registry`` reads."""

ModelLike: TypeAlias = Any
"""A ``GraphLike``, or a function or schedule of the DSL."""

Constants: TypeAlias = Mapping[int | str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class ImportOptions:
    """How a model becomes a graph; the fields are the arguments of ``lower`` of the same names."""

    shapes: Shapes | None = None
    constants: Constants | None = None
    freeze: bool = True
    checks: bool = False

    def __post_init__(self) -> None:
        """Raise ``ArgumentError`` for switches that are neither true nor false."""
        for name in ("freeze", "checks"):
            switch(name, getattr(self, name))


@dataclass(frozen=True, eq=False)
class BuildRecipe:
    """A model and how it is compiled, as ``lower`` has it.

    ``model`` is the path of a file that is read when it is needed, or what was read already.
    """

    model: str | os.PathLike[str] | Imported
    options: BuildOptions
    constants: Constants = field(default_factory=dict)
    freeze: bool = True

    @property
    def target(self) -> Target:
        """The machine that code is made for."""
        return self.options.target

    @cached_property
    def imported(self) -> Imported:
        """The graph, names and weights of the model, which is read if it was not."""
        return imported_model(self.model)

    @property
    def name(self) -> str:
        """The model's name: of the file, or of the module."""
        return self.model.module.name if isinstance(self.model, Imported) else Path(self.model).stem

    @property
    def frozen(self) -> dict[int | str, Any]:
        """The arrays that become constants, by parameter: those given and the model's weights."""
        return self.imported.constants(self.constants, self.freeze)
