"""Exported programs whose inputs have open sizes, as programs of given sizes.

torch traces a program again when it takes operators apart, with stand-ins for its inputs. Here
these have known sizes, so that what comes out has known sizes as well. What the program requires
of its sizes is checked: ranges here, and the guards that torch keeps where it traces.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError
from ..declared import Declared
from ..registry import Shapes

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

FEWEST = 2  # torch traces no fewer in place of an open size; what it traces serves 0 and 1 as well
_HINT = 'shapes={"input": (8, 3)} gives sizes; range(1, 65) in place of one serves all of them'


def declared(program: ExportedProgram) -> Declared:
    """Return the sizes of a program's inputs, with None for those that it leaves open."""
    return {
        node.name: tuple(n if isinstance(n, int) else None for n in node.meta["val"].shape)
        for node in _inputs(program)
    }


def of_sizes(program: ExportedProgram, shapes: Shapes) -> ExportedProgram:
    """Return a program for inputs of these sizes; the program itself if it leaves none open.

    ``ArgumentError`` for sizes that it does not take, and where one stays open.
    """
    from torch.fx import GraphModule

    inputs = list(_inputs(program))
    if not any(map(_is_open, inputs)):
        return program
    wanted = _wanted(inputs, shapes)
    values = _solved(inputs, wanted)
    _check_ranges(program, values)
    new = copy.copy(program)
    new._graph_module = GraphModule(program.graph_module, copy.deepcopy(program.graph))
    new._graph_module.meta.update(program.graph_module.meta)
    places = program.graph.find_nodes(op="placeholder")
    for node, old in zip(new.graph.find_nodes(op="placeholder"), places, strict=True):
        node.name = old.name  # a copy may have another one
        if old in inputs:
            node.meta["val"] = _stand_in(old, values)
    return new


def _inputs(program: ExportedProgram) -> Iterator[Node]:
    """The placeholders of the tensors that a call gives."""
    import torch

    specs = program.graph_signature.input_specs
    given = {getattr(s.arg, "name", "") for s in specs if s.kind.name == "USER_INPUT"}
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in given and isinstance(node.meta.get("val"), torch.Tensor):
            yield node


def _is_open(node: Node) -> bool:
    return any(not isinstance(n, int) for n in node.meta["val"].shape)


def _wanted(inputs: list[Node], shapes: Shapes) -> dict[str, tuple[int | None, ...]]:
    """The sizes that are asked for, by the name of the input."""
    names = [n.name for n in inputs]
    found: dict[str, tuple[int | None, ...]] = {}
    for which, sizes in shapes.items():
        name = names[which] if isinstance(which, int) and which < len(names) else which
        node = next((n for n in inputs if n.name == name), None)
        if node is None:
            raise ArgumentError(f"there is no input {which!r}", hint=f"inputs: {', '.join(names)}")
        rank = len(node.meta["val"].shape)
        if len(sizes) != rank:
            raise ArgumentError(f"input {name!r}", f"it has {rank} dimensions, not {len(sizes)}")
        found[node.name] = tuple(sizes)
    return found


def _solved(inputs: list[Node], wanted: Mapping[str, tuple[int | None, ...]]) -> dict[Any, int]:
    """The values of the program's symbols for which its inputs have these sizes."""
    equations = [
        (node.name, k, n if isinstance(n, int) else n.node.expr, size)
        for node in inputs
        for k, (n, size) in enumerate(
            zip(node.meta["val"].shape, wanted.get(node.name, ()), strict=False)
        )
        if size is not None
    ]
    values: dict[Any, int] = {}
    open_sizes = [(e, n) for _, _, e, n in equations if not isinstance(e, int)]
    for expr, number in sorted(open_sizes, key=lambda e: not e[0].is_Symbol):
        match list(expr.free_symbols - values.keys()):
            case [symbol]:
                _solve(expr.subs(values), symbol, number, values)
    for name, k, expr, number in equations:
        if (expr if isinstance(expr, int) else expr.subs(values)) != number:
            known = ", ".join(f"{s} = {v}" for s, v in values.items() if f"{s}" in f"{expr}")
            why = f"dimension {k} is {number}, the program has {expr}"
            raise ArgumentError(f"input {name!r}", f"{why} with {known}" if known else why)
    return values


def _solve(expr: Any, symbol: Any, number: int, values: dict[Any, int]) -> None:
    """Note the whole number for which a linear expression of a symbol has a value, if any does."""
    start = int(expr.subs({symbol: 0}))
    step = int(expr.subs({symbol: 1})) - start
    if step and (number - start) % step == 0:
        values[symbol] = (number - start) // step


def _check_ranges(program: ExportedProgram, values: Mapping[Any, int]) -> None:
    """Raise for sizes out of the ranges that the program declares."""
    for size, most in program.range_constraints.items():
        number = size.subs(values)
        least = most.lower if most.lower > FEWEST else 0
        if number.is_Integer and not least <= number <= most.upper:
            raise ArgumentError(
                f"a size of {int(number)}",
                f"the program takes {least} to {most.upper} there (`{size}`)",
                hint="dynamic_shapes= of torch.export.export sets the ranges",
            )


def _stand_in(node: Node, values: Mapping[Any, int]) -> Any:
    """A tensor without memory, of an input's type, of known sizes."""
    import torch

    value = node.meta["val"]
    dims = [n if isinstance(n, int) else n.node.expr.subs(values) for n in value.shape]
    for k, n in enumerate(dims):
        if not isinstance(n, int) and not n.is_Integer:
            raise ArgumentError(
                f"input {node.name!r}", f"its dimension {k} is open ({n})", hint=_HINT
            )
    with getattr(value, "fake_mode", None) or nullcontext():
        return torch.empty([int(n) for n in dims], dtype=value.dtype, device=value.device)
