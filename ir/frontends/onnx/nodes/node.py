"""A node of a graph as the functions of the table see it: inputs, attributes, graphs inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ....arrays import Array
from ....dtypes import DType, s64, to_numpy
from ....errors import ParseError, UnsupportedError
from ...lax import bounded
from ...lax.extremes import extremes
from ...lax.graph import Graph
from ...lax.shaping import flatten, reshape, slice_in_dim
from ...lax.term import Term
from .package import import_onnx
from .tensors import tensor_array
from .types import element_type
from .values import Sequence, Value

Body = Callable[..., list[Value]]
"""A graph inside a node: takes the values of its inputs, returns those of its outputs."""


@dataclass(eq=False)
class NeedsValueError(UnsupportedError):
    """A node whose result takes its shape from the value of an input of the model.

    ``inputs`` are the inputs of the model that the value depends on.
    """

    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node with the values of its inputs.

    ``inputs`` are as many as the node names, None where one is left out. ``outputs`` are its
    outputs' names, empty where one is left out; ``used`` are those that something uses.
    ``version`` is that of the operator's domain in the model. ``graph`` is where constants may be
    written. ``attributes`` are AttributeProtos by name, ``defaults`` those of the operator's
    definition. ``place`` names the node in messages.
    """

    op: str
    domain: str
    version: int
    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    used: frozenset[str]
    graph: Graph
    place: str
    attributes: Mapping[str, Any]
    defaults: Mapping[str, Any]
    body: Callable[[Any], Body]
    sources: Callable[[Term], tuple[str, ...]]
    asked: set[int | str] = field(default_factory=set)

    def has(self, n: int) -> bool:
        """True if input ``n`` is given."""
        self.asked.add(n)
        return n < len(self.inputs) and self.inputs[n] is not None

    def wants(self, n: int) -> bool:
        """True if output ``n`` is used."""
        return n < len(self.outputs) and self.outputs[n] in self.used

    def input(self, n: int) -> Term:
        """Return input ``n``, an array."""
        found = self.optional(n)
        if found is None:
            self.malformed(f"input {n} is missing")
        return found

    def optional(self, n: int) -> Term | None:
        """Return input ``n``, an array, or None where it is left out."""
        self.asked.add(n)
        found = self.inputs[n] if n < len(self.inputs) else None
        if isinstance(found, Sequence):
            self.malformed(f"input {n} is a sequence, where an array is expected")
        return found

    def arrays(self) -> list[Term]:
        """Return all inputs, each an array."""
        return [self.input(n) for n in range(len(self.inputs))]

    def sequence(self, n: int) -> Sequence:
        """Return input ``n``, a sequence."""
        self.asked.add(n)
        found = self.inputs[n] if n < len(self.inputs) else None
        if not isinstance(found, Sequence):
            self.malformed(f"input {n} is not a sequence")
        return found

    def known(self, n: int) -> Array:
        """Return the value of input ``n``, which shapes depend on.

        ``NeedsValueError`` where constants alone do not give it.
        """
        term = self.input(n)
        return self.value(term, f"input {n}")

    def value(self, term: Term, what: str) -> Array:
        """Return the value of a term; errors as for ``known``, in which ``what`` names it."""
        found = term.known()
        if found is None:
            inputs = self.sources(term)
            named = ", ".join(f"`{name}`" for name in inputs) or "what the model computes"
            raise NeedsValueError(
                f"{self.op} takes a shape from {what}",
                f"its value depends on {named}, and shapes are fixed when a model is built",
                self.place,
                "export the model with this value as a constant"
                if not inputs
                else f"freeze {named}: constants={{name: value}}, or --constants values.npz",
                inputs=inputs,
            )
        return found

    def sizes(self, n: int) -> tuple[list[int], dict[int, Term]]:
        """Return the sizes that input ``n`` lists; those that values decide are at their bounds and
        again, by their number, as s64 scalars. Errors as for ``known``."""
        x = self.input(n)
        ends = None if x.known() is not None else extremes(x)
        if ends is None:
            return self.known_ints(n), {}
        low, high = (e.reshape(-1) for e in ends)
        flat = flatten(x).to(s64)
        live = {
            k: reshape(slice_in_dim(flat, k, k + 1, 0), ())
            for k in range(flat.dims[0])
            if low[k] != high[k]
        }
        return [int(v) for v in high], live

    def known_ints(self, n: int) -> list[int]:
        """Return the integers of input ``n``; errors as for ``known``."""
        return [int(v) for v in self.known(n).reshape(-1)]

    def int_(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute."""
        return int(self._attribute(name, "i", default))

    def float_(self, name: str, default: float | None = None) -> float:
        """Return a float attribute, as the f32 that it is stored as."""
        return float(np.float32(self._attribute(name, "f", default)))

    def string(self, name: str, default: str | None = None) -> str:
        """Return a text attribute."""
        found = self._attribute(name, "s", default)
        return found.decode() if isinstance(found, bytes) else str(found)

    def ints(self, name: str) -> list[int] | None:
        """Return an attribute of integers, None where it is not given."""
        found = self._given(name)
        return None if found is None else [int(v) for v in found.ints]

    def floats(self, name: str) -> list[float] | None:
        """Return an attribute of floats, None where it is not given."""
        found = self._given(name)
        return None if found is None else [float(v) for v in found.floats]

    def strings(self, name: str) -> list[str] | None:
        """Return an attribute of texts, None where it is not given."""
        found = self._given(name)
        return None if found is None else [v.decode() for v in found.strings]

    def tensor(self, name: str) -> Array | None:
        """Return an attribute's array, None where it is not given."""
        found = self._given(name)
        return None if found is None else tensor_array(found.t, None, self.place)

    def dtype(self, name: str, default: DType | None = None) -> DType:
        """Return an attribute that stands for an element type."""
        found = self._given(name)
        if found is None and default is not None:
            return default
        return element_type(self.int_(name), self.place)

    def gives(self, name: str) -> bool:
        """True if the node has an attribute, or its operator a default for it."""
        return self._given(name) is not None

    def graph_in(self, name: str) -> Body:
        """Return the graph of an attribute, as a function of its inputs."""
        found = self._given(name)
        if found is None or not found.HasField("g"):
            self.malformed(f"attribute `{name}` is no graph")
        return self.body(found.g)

    def constant(self, value: Any, dtype: DType | None = None) -> Term:
        """Return a constant: an array, or a number with its type."""
        array = np.asarray(value) if dtype is None else np.asarray(value).astype(to_numpy(dtype))
        return Term(self.graph, self.graph.constant(array))

    def axis(self, name: str, rank: int, default: int | None = None) -> int:
        """Return an attribute that names one of ``rank`` dimensions, counted from the front."""
        return self.dimension(self.int_(name, default), rank)

    def dimension(self, axis: int, rank: int) -> int:
        """Return a dimension's number, counted from the front."""
        if not -rank <= axis < max(rank, 1):
            self.malformed(f"axis {axis} of an array of rank {rank}")
        return axis % rank if rank else 0

    def leave_out(self, **idle: int | float | str) -> None:
        """Refuse attributes with values other than these, which ask for nothing."""
        for name, value in idle.items():
            given: int | float | str
            match value:
                case int():
                    given = self.int_(name, value)
                case float():
                    given = self.float_(name, value)
                case _:
                    given = self.string(name, value)
            if given != value:
                self.unsupported(f"what its attribute `{name}` means is not computed")

    def ignore(self, *names: str) -> None:
        """Note attributes that mean nothing here, whatever their values are."""
        self.asked.update(names)

    def require_asked(self) -> None:
        """Refuse a node with an input or an attribute that nothing asked for: it means more than
        was computed."""
        for n, given in enumerate(self.inputs):
            if given is not None and n not in self.asked:
                self.unsupported(f"what its input {n} means is not computed")
        for name in self.attributes:
            if name not in self.asked:
                self.unsupported(f"what its attribute `{name}` means is not computed")

    def require_fixed(self) -> None:
        """Refuse inputs of which any size varies."""
        for x in self.inputs:
            if isinstance(x, Term):
                self.fixed(x, range(x.rank))

    def fixed(self, x: Term, axes: Iterable[int]) -> None:
        """Refuse an array whose size varies along one of these dimensions."""
        if any(k in bounded.varying(x) for k in axes):
            self.unsupported(
                "the size of a dimension that it works along depends on values",
                "choose elements after it, or hide the others by Where",
            )

    def malformed(self, why: str) -> NoReturn:
        """Refuse the node: it does not mean anything."""
        raise ParseError(f"{self.op} is malformed", why, self.place)

    def unsupported(self, why: str, hint: str = "") -> NoReturn:
        """Refuse the node: it means what is not computed here."""
        raise UnsupportedError(f"{self.op} is not supported here", why, self.place, hint)

    def _given(self, name: str) -> Any:
        self.asked.add(name)
        return self.attributes.get(name, self.defaults.get(name))

    def _attribute(self, name: str, field: str, default: Any) -> Any:
        found = self._given(name)
        if found is None:
            if default is None:
                self.malformed(f"it has no attribute `{name}`")
            return default
        kinds = import_onnx().AttributeProto
        expected = {"i": kinds.INT, "f": kinds.FLOAT, "s": kinds.STRING}[field]
        if found.type != expected:
            self.malformed(f"attribute `{name}` has another type than the operator's definition")
        return getattr(found, field)
