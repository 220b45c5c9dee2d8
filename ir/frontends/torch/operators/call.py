"""One call of an operator while it is read: what it declares, and its operands as terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ....dtypes import DType, f32, s64, to_numpy
from ....errors import UnsupportedError
from ....hlo.nodes import Shape
from ....hlo.patterns.ranges import interval
from ....library.checks import ValueCheck, description
from ...lax import bounded
from ...lax.checks import raise_unless
from ...lax.graph import Graph
from ...lax.reductions import all_, reduce_by
from ...lax.shaping import full, reshape
from ...lax.term import Dims, Number, Term
from .promotion import Operand, common_type

Result: TypeAlias = "Term | Sequence[Any] | None"
Operator: TypeAlias = Callable[..., Any]
Rows: TypeAlias = Mapping[str, Operator]
"""By the name of an overload, such as ``aten.add.Tensor``: the function that writes a call of it.

Its arguments are a ``AtenCall`` and then the operator's own, by position or name as in its schema:
arrays are terms, element types are ``DType``; devices, layouts and memory formats are left out.
It returns a term for each result, in any type: the caller converts it to the declared one.
"""


class Raising:
    """In place of a list of what has to hold: the code raises an error itself where it does not."""


Required: TypeAlias = "list[Term] | Raising | None"
"""Collects what has to hold of values; None if nobody asks."""

NO_BOUND = (1 << 31) - 1
"""Stands for the bound of a size that has none."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A row that takes and gives arrays of bounded size, of which no padding counts.

    What it is handed varies at most in dimensions that ``bounded.varying`` lists, and the caller
    sets the sizes of what it returns where they do not follow from its operands. ``numbers`` is
    true if numbers among its arguments, sizes included, may be scalars that the graph computes.
    """

    write: Operator
    numbers: bool = False

    def __call__(self, c: AtenCall, *args: Any, **named: Any) -> Any:
        """Write a call."""
        return self.write(c, *args, **named)


def sized(rows: Rows, numbers: bool = False) -> Rows:
    """Return rows that are ``Sized``."""
    return {name: Sized(row, numbers) for name, row in rows.items()}


@dataclass(frozen=True, slots=True)
class AtenCall:
    """A call of the operator ``target``. ``results`` are the shapes that the graph declares.

    ``first`` is how the first argument lies in memory, as the graph declares it: its strides and
    its offset, in elements; None for what is no tensor. ``sizes`` are the sizes of the first result
    that depend on values, by dimension, but for those that the operator itself decides; in
    ``results`` they are at their bounds. ``required`` collects what has to hold of values.
    """

    graph: Graph
    target: str
    results: tuple[Shape | None, ...]
    first: tuple[tuple[int, ...], int] | None = None
    sizes: Mapping[int, Term] = field(default_factory=dict)
    required: Required = None

    @property
    def shape(self) -> Shape:
        """Return the shape of the first result."""
        first = self.results[0]
        assert first is not None
        return first

    @property
    def dtype(self) -> DType:
        """Return the element type of the first result."""
        return self.shape.dtype

    @property
    def dims(self) -> Dims:
        """Return the sizes of the first result."""
        return self.shape.dims

    def term(self, x: Operand, dtype: DType) -> Term:
        """An operand in this type; a number as a scalar."""
        return x.to(dtype) if isinstance(x, Term) else full(self.graph, x, dtype)

    def operands(self, *given: Operand) -> list[Term]:
        """The operands in the type of the result, or in f32 if that is narrower and rounds a
        number: torch computes with Python's numbers as they are.
        """
        narrow = self.dtype.is_float and self.dtype.bits < f32.bits
        rounded = narrow and any(not isinstance(x, Term) and _rounds(x, self.dtype) for x in given)
        return [self.term(x, f32 if rounded else self.dtype) for x in given]

    def alike(self, *given: Term) -> list[Term]:
        """The operands, which torch does not convert: refused unless of one type."""
        if len(dtypes := dict.fromkeys(x.dtype.name for x in given)) > 1:
            hint = "torch refuses it too: convert the inputs, or the module's weights, to one type"
            self.refuse(f"its operands are of types {' and '.join(dtypes)}", hint)
        return self.operands(*given)

    def promoted(self, *given: Operand) -> list[Term]:
        """The operands in their common type."""
        dtype = common_type(*given)
        return [self.term(x, dtype) for x in given]

    def fixed(self, x: Term, axes: Iterable[int]) -> None:
        """Refuse an operand whose size varies along one of these dimensions."""
        if any(k % x.rank in bounded.varying(x) for k in axes):
            self.refuse("the size of a dimension that it works along depends on values")

    def require(self, holds: Term, why: str = "", kind: ValueCheck = ValueCheck.PLACE) -> None:
        """Note what torch raises an error without, if anybody asks for it."""
        match self.required:
            case list():
                self.required.append(all_(holds) if holds.rank else holds)
            case Raising():
                raise_unless(holds, description(kind, self.target, why, self._line))

    @property
    def _line(self) -> str:
        """The line of the model that made the call, as far as torch tells it."""
        made = self.graph.origin
        return f"{made.source_file}:{made.source_line}" if made and made.source_file else ""

    def within(self, places: Term, size: int, low: int = 0) -> None:
        """Note that integers are in ``range(low, size)``, unless that is known."""
        if self.required is None:
            return
        known = interval(places.value)
        if known and low <= known[0] and known[1] < size:
            return
        wide = reshape(places, (-1,)).to(s64)
        signs = (wide - low) | (size - 1 - wide)  # one reduction that every processor has in lanes
        self.require(reduce_by("or", signs) >= 0, f"a place is not in range({low}, {size})")

    @property
    def inside(self) -> Required:
        """The same for graphs in it of which nothing is collected: they raise their own errors."""
        return None if isinstance(self.required, list) else self.required

    def refuse(self, why: str, hint: str = "") -> NoReturn:
        """Raise ``UnsupportedError`` that names the operator."""
        raise UnsupportedError(f"cannot compile {self.target}", why, hint=hint)


def _rounds(x: Number, dtype: DType) -> bool:
    """True if a finite real number is another one in this type."""
    if isinstance(x, complex) or not math.isfinite(x):
        return False
    with np.errstate(over="ignore"):
        return float(np.asarray(x, np.float64).astype(to_numpy(dtype))) != x


def wide(x: Term) -> Term:
    """Floats of fewer than 32 bits as f32, in which torch computes what is more than one step."""
    return x.to(f32) if x.dtype.is_float and x.dtype.bits < f32.bits else x
