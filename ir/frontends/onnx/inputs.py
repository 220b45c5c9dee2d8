"""Inputs and weights of a model: parameters, and constants where shapes need a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import from_numpy, to_numpy
from ...errors import ArgumentError, UnsupportedError
from ...hlo.limits import require_bytes
from ...hlo.nodes import Instruction, Shape
from ..lax.graph import MAX_KNOWN, Graph
from ..lax.term import Term
from .nodes.types import element_type
from .nodes.values import Sequence as ValueSequence
from .nodes.values import Value

Binding: TypeAlias = "Sequence[int | None] | Array | list[Binding] | None"
"""The sizes of an input, its value, those of each element of a sequence, or None for an optional
that is absent."""

HINT = 'give its sizes: shapes={"input": (1, 3, 224, 224)}, or --shape input=1x3x224x224'


class Inputs:
    """The parameters of a model's graph, by the names of the inputs and weights they stand for."""

    def __init__(self, graph: Graph, bindings: Mapping[str, Binding], source: str) -> None:
        self._graph = graph
        self._bindings = bindings
        self._source = source
        self._sizes: dict[str, int] = {}
        self.names: list[str] = []
        self.parameters: dict[Instruction, str] = {}
        self.weights: dict[int, Array] = {}

    def bind(self, infos: Sequence[Any]) -> dict[str, Value]:
        """Return the values of inputs, ``ValueInfoProto``s; unbound sizes are an error."""
        for info in infos:
            self._learn(info)
        return {info.name: self._value(info) for info in infos}

    def constant(self, name: str, array: Array) -> Term:
        """The value of an input, of its parameter's shape and type."""
        shape = next(p.array for p, own in self.parameters.items() if own == name)
        dtype = to_numpy(shape.dtype)
        if array.shape != shape.dims or not np.can_cast(array.dtype, dtype, "same_kind"):
            where = f"{self._source}: input `{name}`"
            why = f"the model has {shape.dtype}{list(shape.dims)} there"
            raise ArgumentError(f"cannot be {array.dtype}{list(array.shape)}", why, where)
        return Term(self._graph, self._graph.constant(array.astype(dtype)))

    def weight(self, name: str, array: Array, known: bool) -> Term:
        """A weight: a constant where it has to be ``known``, else a parameter.

        Shapes often depend on integers and on single numbers, which are constants. So are vectors
        of integers that are all the same, as zero points of weights are.
        """
        whole = array.dtype.kind in "iub"
        if known or (whole and array.size <= MAX_KNOWN) or array.size <= 1:
            return Term(self._graph, self._graph.constant(array))
        if whole and array.ndim == 1 and (array == array[0]).all():
            one = Term(self._graph, self._graph.constant(array[:1].reshape(())))
            return one.like(Shape(from_numpy(array.dtype), array.shape))
        parameter = self._graph.parameter(Shape(from_numpy(array.dtype), array.shape), name)
        self.weights[parameter.attrs["number"]] = array
        self.parameters[parameter] = name
        return Term(self._graph, parameter)

    def _learn(self, info: Any) -> None:
        """Note the symbolic sizes that the binding of an input gives."""
        bound = self._bindings.get(info.name)
        dims = info.type.tensor_type.shape.dim
        sizes = bound.shape if isinstance(bound, np.ndarray) else bound
        if isinstance(sizes, tuple) and len(sizes) == len(dims):
            for d, size in zip(dims, sizes, strict=True):
                if d.dim_param and isinstance(size, int):
                    self._sizes.setdefault(d.dim_param, size)

    def _value(self, info: Any) -> Value:
        where = f"{self._source}: input `{info.name}`"
        kind, bound = info.type, self._bindings.get(info.name)
        if kind.HasField("optional_type"):
            if info.name in self._bindings and bound is None:
                return None
            kind = kind.optional_type.elem_type
        if kind.HasField("sequence_type"):
            return self._list(info.name, kind.sequence_type.elem_type.tensor_type, bound, where)
        if not kind.HasField("tensor_type"):
            raise UnsupportedError("is neither an array nor a sequence of arrays", "", where)
        return self._array(info.name, kind.tensor_type, bound, where)

    def _list(self, name: str, kind: Any, bound: Binding, where: str) -> ValueSequence:
        if not isinstance(bound, list):
            hint = f"give an example with {name}: a list of arrays"
            raise ArgumentError("is a sequence of unknown length", "", where, hint)
        dtype = element_type(kind.elem_type, where)
        terms = [self._array(f"{name}.{n}", kind, one, where) for n, one in enumerate(bound)]
        return ValueSequence(tuple(terms), dtype)

    def _array(self, name: str, kind: Any, bound: Binding, where: str) -> Term:
        dtype = element_type(kind.elem_type, where)
        if isinstance(bound, np.ndarray):
            self._fitting(kind, bound.shape, where)
            return Term(self._graph, self._graph.constant(bound))
        dims = self._fitting(kind, bound if isinstance(bound, tuple) else None, where)
        require_bytes(prod(dims) * dtype.bytes, "the input", where)
        parameter = self._graph.parameter(Shape(dtype, dims), name)
        self.parameters[parameter] = name
        self.names.append(name)
        return Term(self._graph, parameter)

    def _fitting(
        self, kind: Any, sizes: Sequence[int | None] | None, where: str
    ) -> tuple[int, ...]:
        """The sizes of an input, by what is given and what the model declares."""
        if not kind.HasField("shape"):
            if sizes is None or None in sizes:
                raise ArgumentError("has no shape in the model", "", where, HINT)
            return tuple(int(n) for n in sizes if n is not None)
        declared = kind.shape.dim
        if sizes is not None and len(sizes) != len(declared):
            why = f"the model has rank {len(declared)}"
            raise ArgumentError(f"cannot have the shape {list(sizes)}", why, where)
        given = sizes or [None] * len(declared)
        return tuple(
            self._size(n, d, size, where)
            for n, (d, size) in enumerate(zip(declared, given, strict=True))
        )

    def _size(self, n: int, declared: Any, size: int | None, where: str) -> int:
        if not declared.HasField("dim_value") or declared.dim_value < 0:  # some writers mean open
            known = self._sizes.get(declared.dim_param) if size is None else size
            if known is None:
                called = f"`{declared.dim_param}`" if declared.dim_param else "left open"
                what = f"the size of dimension {n} is {called} in the model"
                raise ArgumentError(what, "shapes are fixed when it is built", where, HINT)
            return int(known)
        fixed = int(declared.dim_value)
        if size is not None and size != fixed:
            why = f"the model has {fixed} there, and {size} is given"
            raise ArgumentError(f"the size of dimension {n} does not fit", why, where)
        return fixed
