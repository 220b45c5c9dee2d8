"""torch's modules and exported programs as imported models."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Array
from ...errors import ArgumentError, NestwrightError, UnsupportedError
from ..imported import Flatten, Imported, Rebuild
from ..lax.graph import Graph
from ..lax.term import Term
from ..registry import Shapes
from .decompositions import export_decompositions
from .dtypes import as_array, as_tensor
from .open_programs import of_sizes
from .operators.call import Raising, Required
from .walk import check, operator, outputs, parameters, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch.export import ExportedProgram
    from torch.fx import GraphModule


def module(model: torch.nn.Module, example: Any) -> Imported:
    """Return a module as ``torch.export`` traces it with example arguments.

    ``example`` is a tuple of arrays, tensors or other arguments; if the last one is a dict, it has
    the keyword arguments, as for ``torch.onnx.export``. The module is exported in the mode in which
    it is: ``model.eval()`` first where dropout or batch norm should not train. ``ArgumentError``
    without arguments, or where torch cannot trace the module with them.
    """
    import torch

    name = type(model).__name__
    if example is None:
        raise ArgumentError(
            f"cannot build the module {name}",
            "no example arguments are given",
            hint="nw.lower(model, x), or nw.build(model, example=(x,))",
        )
    given = list(example) if isinstance(example, tuple | list) else [example]
    named = given.pop() if given and isinstance(given[-1], Mapping) else {}
    args = tuple(_example(a) for a in given)
    kwargs = {k: _example(a) for k, a in named.items()}
    with _torch_errors(name), torch.no_grad():
        program = torch.export.export(model, args, kwargs, strict=False)
    return exported(program)


def exported(
    program: ExportedProgram, example: None = None, shapes: Shapes | None = None
) -> Imported:
    """Return an exported program: inputs first, then parameters and buffers as weights.

    ``shapes`` are the sizes of inputs that it leaves open. A buffer or input that the program
    changes is an input, and its new value a further result, after the program's own: the names of
    both are the buffer's, as ``bn.running_mean``.
    """
    with _torch_errors("the program"):
        sized = of_sizes(program, shapes or {})
        program = sized.run_decompositions(export_decompositions())
    return _TakenApart(program).imported()


CHECKS = "aten._linalg_check_errors.default"
"""The effect that raises an error for a matrix without the factor that was asked for."""


def _without_checks(gm: GraphModule) -> GraphModule:
    """Return a graph that does not look at what factorizations say of themselves."""
    checks = [n for n in gm.graph.nodes if n.op == "call_function" and operator(n) == CHECKS]
    if not checks:
        return gm
    new = copy.deepcopy(gm)
    for node in [n for n in new.graph.nodes if n.op == "call_function" and operator(n) == CHECKS]:
        for user in list(node.users):  # the token of the next effect
            user.replace_all_uses_with(node.args[0])
            new.graph.erase_node(user)
        new.graph.erase_node(node)
    return new


class _TakenApart:
    """An exported program by its parts: what is given, carried and changed."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.gm = _without_checks(program.graph_module)
        check(self.gm, "main")
        nodes = {n.name: n for n in self.gm.graph.nodes if n.op == "placeholder"}
        signature = program.graph_signature
        self.changed = [
            str(spec.target)
            for spec in signature.output_specs
            if spec.kind.name.endswith("MUTATION")
        ]
        self.carried: dict[str, str] = {}
        self.given: dict[str, str] = {}
        mutable = set(self.changed)
        kept: dict[str, str] = {}
        for spec in signature.input_specs:
            place = getattr(spec.arg, "name", "")
            if place not in nodes:
                continue
            match spec.kind.name:
                case "USER_INPUT":
                    self.given[place] = place
                case "PARAMETER" | "BUFFER" | "CONSTANT_TENSOR" if nodes[place].users:
                    held = kept if spec.target in mutable else self.carried
                    held[place] = str(spec.target)
                case "CUSTOM_OBJ" | "TOKEN" if any(u.op != "output" for u in nodes[place].users):
                    why = f"its input `{place}` is no tensor, but a {spec.kind.name.lower()}"
                    raise UnsupportedError("cannot compile the exported program", why)
                case _:
                    pass
        self.given |= kept

    def imported(self, required: Required = None) -> Imported:
        """Return the model, its weights as views of the program's tensors."""
        graph = Graph("main")
        values = parameters(graph, self.gm, [*self.given, *self.carried])
        terms = {n.name for n in self.gm.graph.nodes if n.op == "placeholder"} - values.keys()
        values |= dict.fromkeys(terms)
        inputs = [n for n in self.given if isinstance(values[n], Term)]
        results = write(graph, self.gm, values, required)
        order, names = self._results()
        held = [self._array(target) for target in self.carried.values()]
        return Imported(
            module=graph.module([results[k].value for k in order]),
            inputs=tuple(self.given[n] for n in inputs),
            outputs=names,
            weights={len(inputs) + k: array for k, array in enumerate(held)},
            rebuild=self._rebuild(),
            flatten=self._flatten(),
            checked=None if required else lambda: self.imported(Raising()),
        )

    def _results(self) -> tuple[list[int], tuple[str, ...]]:
        """The order of results, the program's own before changed values, and their names."""
        own: list[tuple[int, str]] = []
        new: list[tuple[int, str]] = []
        tensors = set(outputs(self.gm))
        (output,) = (n for n in self.gm.graph.nodes if n.op == "output")
        count = 0
        for spec, node in zip(
            self.program.graph_signature.output_specs, output.args[0], strict=True
        ):
            if node not in tensors or spec.kind.name == "TOKEN":
                continue
            changed = spec.kind.name.endswith("MUTATION")
            (new if changed else own).append((count, spec.target if changed else node.name))
            count += 1
        order = own + new
        return [k for k, _ in order], tuple(str(name) for _, name in order)

    def _array(self, target: str) -> Array:
        known: Mapping[str, Any] = {**self.program.constants, **self.program.state_dict}
        return as_array(known[target])

    def _rebuild(self) -> Rebuild:
        """Make what the module's own call returns; with changed values, a pair: it, and those."""
        from torch.utils._pytree import tree_unflatten

        spec = self.program.call_spec.out_spec
        signature = self.program.graph_signature
        user = [s.arg for s in signature.output_specs if s.kind.name == "USER_OUTPUT"]
        changed = tuple(self.changed)

        def rebuild(flat: tuple[Array, ...]) -> Any:
            arrays = iter(flat)
            leaves = [_leaf(a, arrays) for a in user]
            made = leaves if spec is None else tree_unflatten(leaves, spec)
            return (made, dict(zip(changed, arrays, strict=True))) if changed else made

        return rebuild

    def _flatten(self) -> Flatten | None:
        """Make the flat inputs of the arguments of the module's own call.

        None where the values of buffers are inputs, too, and where they are the arguments. What is
        no tensor has to be as it was.
        """
        from torch.utils._pytree import tree_flatten, tree_structure

        spec = self.program.call_spec.in_spec
        user = [
            s.arg for s in self.program.graph_signature.input_specs if s.kind.name == "USER_INPUT"
        ]
        as_they_are = spec == tree_structure(((0,) * len(user), {})) and all(map(_is_tensor, user))
        if spec is None or len(self.given) > len(user) or as_they_are:
            return None
        order = _keywords(spec)

        def flatten(args: Sequence[Any], named: Mapping[str, Any]) -> list[Any] | None:
            if len(named) != len(order) or any(k not in named for k in order):
                return None
            leaves, tree = tree_flatten((tuple(args), {k: named[k] for k in order}))
            if tree != spec:
                return None
            pairs = list(zip(user, leaves, strict=True))
            fixed = [(a, leaf) for a, leaf in pairs if not _is_tensor(a)]
            if any(type(leaf) is not type(a.value) or leaf != a.value for a, leaf in fixed):
                return None
            return [leaf for a, leaf in pairs if _is_tensor(a)]

        return flatten


def _example(argument: Any) -> Any:
    """An example argument as torch takes it; anything with ``shape`` and ``dtype`` will do.

    A tensor is detached because torch tells inputs apart by identity: of one that is given twice,
    or is a weight as well, all uses would read the same input.
    """
    import torch
    from torch.utils._pytree import tree_map

    def leaf(value: Any) -> Any:
        match value:
            case torch.Tensor():
                return value.detach()
            case np.ndarray() | np.generic():
                return as_tensor(np.asarray(value))
            case _ if hasattr(value, "shape") and hasattr(value, "dtype"):
                return as_tensor(np.zeros(tuple(value.shape), value.dtype))
            case _:
                return value

    return tree_map(leaf, argument)


def _keywords(spec: Any) -> list[str]:
    """The names of the arguments by keyword in the tree of a call, in its order."""
    found = getattr(spec, "children", None)  # a method since torch 2.10
    return list((found() if callable(found) else spec.children_specs)[1].context)


def _leaf(argument: Any, arrays: Iterator[Array]) -> Any:
    """A result of a program: the next array, the number that it holds, or what is no tensor."""
    if _is_tensor(argument):
        return next(arrays)
    if type(argument).__name__ in ("SymIntArgument", "SymFloatArgument", "SymBoolArgument"):
        return next(arrays).item()
    return getattr(argument, "value", None)


def _is_tensor(argument: Any) -> bool:
    """True for an argument or result of a program's signature that is a tensor."""
    return type(argument).__name__ == "TensorArgument"


@contextmanager
def _torch_errors(name: str) -> Iterator[None]:
    """Raise what torch raises while it traces as an ``ArgumentError`` of one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch about itself
            yield
    except NestwrightError:
        raise
    except Exception as e:
        told = str(e).strip().split("\n")[0]
        raise ArgumentError(
            f"torch cannot export {name}",
            f"{type(e).__name__}: {told}",
            hint="does it run on the example arguments? What depends on values or changes Python's "
            'objects stays in Python: torch.compile(model, backend="nestwright")',
        ) from e
