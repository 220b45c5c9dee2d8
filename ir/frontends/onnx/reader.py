"""ONNX models -> ``Imported``: the module, the model's own names, its weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ...arrays import Array
from ...errors import ArgumentError, ParseError
from ...hlo.limits import exhaustion_as_limit
from ...hlo.nodes import Instruction
from ..imported import Imported
from ..lax.graph import Graph
from ..lax.term import Term
from ..registry import Shapes, Values
from . import operators as operators  # fills the table
from .inputs import Binding, Inputs
from .nodes.frames import names_used, needed
from .nodes.model import (
    CheckedModel,
    damage_as_parse_error,
    file_bytes,
    model_of_bytes,
    model_of_proto,
)
from .nodes.node import NeedsValueError
from .nodes.values import Sequence, Value
from .nodes.walk import Walk, initial_frame

FEW = 16
"""Elements of a weight that becomes a constant as soon as some shape depends on a weight."""


def read(path: Path, *, shapes: Shapes | None = None, values: Values | None = None) -> Imported:
    """Read an ``.onnx`` file; data beside it is looked for in its folder only.

    ``shapes`` settle sizes that the model leaves open, ``values`` what a shape or the choice of a
    branch depends on; their inputs stay parameters. ``ParseError`` for a damaged model,
    ``ArgumentError`` for sizes that stay open or do not fit, ``UnsupportedError`` for operators
    that are not computed, ``LimitError`` for a file or graph that is too large; each names the node
    or input.
    """
    return parse(file_bytes(path), str(path), shapes, values)


def parse(
    content: bytes,
    source: str = "<bytes>",
    shapes: Shapes | None = None,
    values: Values | None = None,
) -> Imported:
    """Read the bytes of the file ``source``; errors as for ``read``."""
    with exhaustion_as_limit(source):
        model = model_of_bytes(content, source)
        return imported(model, by_name(model, shapes or {}), _values(model, values or {}))


def convert(
    model: Any, example: Any = None, *, shapes: Shapes | None = None, values: Values | None = None
) -> Imported:
    """Read an ``onnx.ModelProto``, whose data is all in it; errors as for files.

    ``example`` may hold the inputs in order: their shapes count.
    """
    source = f"<{model.graph.name or 'ModelProto'}>"
    given: tuple[Any, ...] = tuple(example) if isinstance(example, list | tuple) else (example,)
    settled: dict[str | int, Any] = {
        n: tuple(x.shape) for n, x in enumerate(given) if hasattr(x, "shape")
    }
    with exhaustion_as_limit(source):
        found = model_of_proto(model, source)
        bindings = by_name(found, settled | dict(shapes or {}))
        return imported(found, bindings, _values(found, values or {}))


def by_name(model: CheckedModel, shapes: Shapes) -> dict[str, Binding]:
    """Return shapes that are given by name or by the place of an input, by name."""
    names = _names_of_inputs(model)
    found: dict[str, Binding] = {}
    for which, dims in shapes.items():
        inside = isinstance(which, int) and 0 <= which < len(names)
        name = names[int(which)] if inside else str(which)
        if name not in names:
            known = ", ".join(names[:8])
            raise ArgumentError(
                f"there is no input {which!r}", "", model.source, f"inputs: {known}"
            )
        found[name] = tuple(dims)
    return found


def _names_of_inputs(model: CheckedModel) -> list[str]:
    return [i.name for i in model.graph.input if i.name not in model.weights]


def _values(model: CheckedModel, values: Values) -> dict[str, Array]:
    """Return those values that are of inputs, by name."""
    found = {}
    for place, name in enumerate(_names_of_inputs(model)):
        for which in (place, str(place), name):
            if which in values:
                found[name] = np.asarray(values[which])
    return found


def imported(
    model: CheckedModel,
    bindings: Mapping[str, Binding],
    values: Mapping[str, Array] = MappingProxyType({}),
) -> Imported:
    """Return a checked model with its inputs settled by ``bindings``.

    Weights that a shape turns out to depend on become constants, and the model is read again; so
    do ``values`` of inputs, whose parameters are left without a use.
    """
    arrays = {**model.weights, **values}
    known: set[str] = set()
    while True:
        try:
            with damage_as_parse_error(model.source):
                used = {name: values[name] for name in known if name in values}
                return _read(model, bindings, known, used)
        except NeedsValueError as e:
            asked = {name for name in e.inputs if name in arrays} - known
            if not asked:
                raise
            known |= asked | {n for n, array in arrays.items() if array.size <= FEW}


def _read(
    model: CheckedModel,
    bindings: Mapping[str, Binding],
    known: set[str],
    constants: Mapping[str, Array],
) -> Imported:
    graph = Graph(model.graph.name or Path(model.source).stem or "main")
    results = [o.name for o in model.graph.output]
    if not results:
        raise ParseError("the model computes nothing", "its graph has no outputs", model.source)
    inputs = Inputs(graph, bindings, model.source)
    own = [i for i in model.graph.input if i.name not in model.weights or i.name in bindings]
    values: dict[str, Value] = dict(inputs.bind(own))
    values |= {name: inputs.constant(name, array) for name, array in constants.items()}
    for name in _used(model, results):
        if name not in values:
            values[name] = inputs.weight(name, model.weights[name], name in known)
    walk = Walk(model, lambda term: _sources(term, inputs.parameters))
    found = walk.results(model.graph.node, results, initial_frame(model, graph, values))
    flat, rebuild = _flat(found)
    return Imported(
        module=graph.module([t.value for t in flat], graph.name),
        inputs=tuple(inputs.names),
        outputs=_names(results, found),
        weights=inputs.weights,
        rebuild=rebuild,
    )


def _used(model: CheckedModel, results: list[str]) -> list[str]:
    """The names of weights that results depend on, in the model's order."""
    used = set(results)
    for node, _ in needed(model.graph.node, results):
        used.update(names_used(node))
    return [name for name in model.weights if name in used]


def _sources(term: Term, parameters: Mapping[Instruction, str]) -> tuple[str, ...]:
    """The inputs that a term depends on."""
    seen: set[Instruction] = set()
    pending: list[Instruction] = [_outermost(term, term.value)]
    while pending:
        i = pending.pop()
        if i not in seen:
            seen.add(i)
            pending += [_outermost(term, o) for o in i.operands]
    return tuple(name for parameter, name in parameters.items() if parameter in seen)


def _outermost(term: Term, value: Instruction) -> Instruction:
    """The value outside that a parameter of an inner graph stands for."""
    site = term.site
    while isinstance(site, Graph) and site.outer is not None:
        value = next((out for out, own in site.captured.items() if own is value), value)
        site = site.outer
    return value


def _flat(values: list[Value]) -> tuple[list[Term], Any]:
    """All arrays of the results, and what makes the results of them where one is no array."""
    flat: list[Term] = []
    for value in values:
        match value:
            case Term():
                flat.append(value)
            case Sequence(elements=elements):
                flat += elements
    if all(isinstance(value, Term) for value in values):
        return flat, None
    return flat, partial(_rebuilt, [_length(v) for v in values])


def _names(results: list[str], values: list[Value]) -> tuple[str, ...]:
    """A name for every array of the results."""
    return tuple(
        name if count is None else f"{name}.{n}"
        for name, count in zip(results, map(_length, values), strict=True)
        for n in range(1 if count is None else count)
    )


def _length(value: Value) -> int | None:
    """How many arrays a sequence has; None for an array, -1 for what is absent."""
    match value:
        case Term():
            return None
        case Sequence(elements=elements):
            return len(elements)
        case _:
            return -1


def _rebuilt(lengths: list[int | None], arrays: tuple[Array, ...]) -> Any:
    """The results of a model: arrays, lists of them, and None for what is absent."""
    rest = iter(arrays)
    made: list[Any] = []
    for length in lengths:
        if length is None:
            made.append(next(rest))
        else:
            made.append(None if length < 0 else [next(rest) for _ in range(length)])
    return made[0] if len(made) == 1 else tuple(made)
