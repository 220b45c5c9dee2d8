"""An FX graph of ATen operators, node by node, as a computation of HLO.

The graph says what type and sizes every node has (``meta["val"]``, a fake tensor); an operator's
row computes, and its results are converted to the types that the graph declares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from ...errors import NestwrightError, UnsupportedError, VerifyError
from ...findings import Finding
from ...hlo.nodes import HloModule, Metadata
from ..lax import bounded
from ..lax.graph import Graph
from ..lax.term import Term
from .decompositions import decompositions
from .dtypes import as_array, element_type
from .operators.call import AtenCall, Required, Sized
from .operators.logic import ASSERTIONS
from .sizes import OpenSizes, is_open, is_symbol, leaves, plain
from .table import named_reason, row, why_not

if TYPE_CHECKING:
    import torch

_PLACES = frozenset(
    {"device", "layout", "pin_memory", "memory_format", "non_blocking", "generator"}
)
"""Arguments that say where a tensor is, not what it holds."""
_OPEN_SHAPE = "it is not compiled for shapes that depend on values"
_OPEN_NUMBER = "it is not compiled for numbers that depend on values"
_SOURCE = re.compile(r'File "([^"]+)", line (\d+)')


def graph_module(gm: torch.fx.GraphModule, name: str = "main") -> HloModule:
    """Return the module of an FX graph of ATen and prims operators.

    Its parameters are the placeholders that are tensors, in order, its results the tensors of the
    output node, in order: one array, or a tuple of any other number. Tensors that the graph holds
    (``get_attr``) become constants. ``UnsupportedError`` names each node that cannot be compiled,
    and why.
    """
    return _module(gm, name, None)


def checked_module(gm: torch.fx.GraphModule, name: str) -> tuple[HloModule, bool]:
    """Return the module of a graph, and whether it has a last result more, a truth value.

    That is false where values make torch raise an error, such as a place beyond an array.
    """
    required: list[Term] = []
    return _module(gm, name, required), bool(required)


def _module(gm: torch.fx.GraphModule, name: str, required: list[Term] | None) -> HloModule:
    check(gm, name)
    graph = Graph(name)
    results = write(graph, gm, parameters(graph, gm), required)
    holds = [reduce(and_, required)] if required else []
    return graph.module([t.value for t in (*results, *holds)])


def check(gm: torch.fx.GraphModule, name: str) -> None:
    """Raise ``UnsupportedError`` that lists each node which cannot be compiled, and why."""
    refused = unsupported(gm)
    if not refused:
        return
    findings = tuple(
        Finding(operator(node), node.name, name, why, source=source_of(node))
        for node, why in refused
    )
    shown = "; ".join(f"{f.opcode} `{f.name}`: {f.reason}" for f in findings[:5])
    more = f"; and {len(findings) - 5} more" if len(findings) > 5 else ""
    raise UnsupportedError(
        f"cannot compile the graph `{name}`",
        shown + more,
        hint=_picked(findings)
        + 'torch.compile(model, backend="nestwright") leaves such operators to eager',
        findings=findings,
    )


def _picked(findings: Sequence[Finding]) -> str:
    """Say where sizes come to depend on values, and what would not; nothing if they do not."""
    first = next((f for f in findings if f.reason in (_OPEN_SHAPE, _OPEN_NUMBER)), None)
    if first is None:
        return ""
    where = f" ({first.source})" if first.source else ""
    return f"pick elements before the model{where}, or hide the others by torch.where; "


def unsupported(gm: torch.fx.GraphModule) -> list[tuple[torch.fx.Node, str]]:
    """Return the nodes that cannot be compiled, each with the reason; nothing is built."""
    found = ((node, refusal(node)) for node in gm.graph.nodes)
    return [(node, why) for node, why in found if why]


def refusal(node: torch.fx.Node) -> str:
    """Return why a node cannot be compiled; nothing if it can."""
    if node.op == "output":
        return ""
    if node.op in ("call_module", "call_method"):
        return "a call of Python, not of an ATen operator"
    if node.op == "get_attr" or (node.op == "call_function" and is_number(node)):
        return ""
    target = operator(node)
    for value in leaves(node.meta.get("val")):
        if why := unreadable(value):
            return named_reason(target) or why
    if node.op == "placeholder":
        return _OPEN_SHAPE if is_open(node.meta.get("val")) else ""
    if is_item(node) or is_expression(node):
        return ""
    if row(target) is None:
        return why_not(target)
    for gm in _subgraphs(node):
        for inner, why in unsupported(gm):
            return f"{operator(inner)} in it: {why}"
    return "its effects have an order" if target != str(node.target) else _open_reason(node)


def _open_reason(node: torch.fx.Node) -> str:
    """Return why an operator is not compiled for sizes that depend on values; nothing if it is, or
    has none."""
    if str(node.target) in ASSERTIONS:
        return ""
    found = row(str(node.target))
    given = [v for n in node.all_input_nodes for v in leaves(n.meta.get("val"))]
    if not any(map(is_open, (*given, *leaves(node.meta.get("val"))))):
        return ""
    if not isinstance(found, Sized):
        return _OPEN_SHAPE
    return "" if found.numbers or not any(map(is_symbol, given)) else _OPEN_NUMBER


def operator(node: torch.fx.Node) -> str:
    """Return the name of the operator that a node calls, itself or by one that orders effects or
    gives what is written as results."""
    match str(node.target):
        case "with_effects":
            return str(node.args[1])
        case "auto_functionalized" | "auto_functionalized_v2":
            return str(node.args[0])
        case target:
            return target


def is_number(node: torch.fx.Node) -> bool:
    """True for a node whose value is a Python number known while the graph was traced."""
    return isinstance(plain(node.meta.get("val")), bool | int | float | complex)


def is_item(node: torch.fx.Node) -> bool:
    """True for a node that picks one of several results."""
    return getattr(node.target, "__name__", "") == "getitem"


def is_expression(node: torch.fx.Node) -> bool:
    """True for a node whose value is an expression of sizes, which needs no row."""
    return is_symbol(node.meta.get("val")) and row(str(node.target)) is None


def outputs(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return the nodes of a graph's results that are tensors or open numbers, flat, in order."""
    (output,) = (n for n in gm.graph.nodes if n.op == "output")
    nodes = [n for n in leaves(output.args) if hasattr(n, "meta")]
    return [n for n in nodes if hasattr(v := n.meta.get("val"), "shape") or is_open(v)]


def parameters(
    graph: Graph, gm: torch.fx.GraphModule, order: Sequence[str] | None = None
) -> dict[str, Any]:
    """Write a parameter for each placeholder that is a tensor; return values by name of the node.

    ``order`` lists their names, by default in the graph's order.
    """
    nodes = {n.name: n for n in gm.graph.nodes if n.op == "placeholder"}
    values: dict[str, Any] = {}
    sizes = OpenSizes(graph)
    for name in order if order is not None else nodes:
        value = nodes[name].meta.get("val")
        shape = sizes.shape(value)
        values[name] = value if shape is None else Term(graph, graph.parameter(shape, name))
    return values


def write(
    graph: Graph,
    gm: torch.fx.GraphModule,
    given: Mapping[str, Any],
    required: Required = None,
) -> list[Term]:
    """Write a graph's nodes; return the terms of its output, flat, without what is no tensor.

    What its operators require of values is added to ``required``.
    """
    walk = _Walk(graph, gm, dict(given), OpenSizes(graph), required)
    for node in gm.graph.nodes:
        walk.visit(node)
    return walk.results


@dataclass(slots=True)
class _Walk:
    """The values of nodes by name, while a graph is written."""

    graph: Graph
    gm: torch.fx.GraphModule
    values: dict[str, Any]
    sizes: OpenSizes
    required: Required
    results: list[Term] = field(default_factory=list)

    def visit(self, node: torch.fx.Node) -> None:
        """Write one node."""
        match node.op:
            case "output":
                self.results = [t for t in leaves(self.value(node.args)) if isinstance(t, Term)]
            case "get_attr":
                self.values[node.name] = self._attribute(str(node.target))
            case "call_function":
                self.graph.label = node.name
                self.graph.origin = _metadata(node)
                self.values[node.name] = self._call(node)
            case _:
                assert node.name in self.values, f"{node.op} {node.name}"

    def value(self, argument: Any) -> Any:
        """An argument as it is here: nodes as their values, types as element types."""
        import torch

        match argument:
            case torch.fx.Node():
                return self.value(self.values[argument.name])
            case tuple() | list():
                return [self.value(a) for a in argument]
            case dict():
                return {k: self.value(a) for k, a in argument.items()}
            case torch.dtype():
                return element_type(argument)
            case torch.SymInt() | torch.SymFloat() | torch.SymBool():
                return self.sizes.number(argument) if is_symbol(argument) else plain(argument)
            case torch.device() | torch.layout() | torch.memory_format():
                return None
            case _:
                return argument

    def _attribute(self, target: str) -> Any:
        import torch

        found: Any = self.gm
        for part in target.split("."):
            found = getattr(found, part)
        if isinstance(found, torch.Tensor):
            return Term(self.graph, self.graph.constant(as_array(found)))
        return _Subgraph(found) if isinstance(found, torch.fx.GraphModule) else found

    def _call(self, node: torch.fx.Node) -> Any:
        declared = node.meta.get("val")
        if is_number(node) or is_expression(node):
            return plain(declared)
        if str(node.target) in ASSERTIONS:
            return None
        given = _of_base(node)
        args = [self.value(a) for a in given]
        if is_item(node):
            return args[0][args[1]]
        named = {k: self.value(a) for k, a in node.kwargs.items() if k not in _PLACES}
        shapes = tuple(self.sizes.shape(v) for v in _results(declared))
        first = next(iter(_results(declared)), None)
        live = self.sizes.open_sizes(first)
        call = AtenCall(self.graph, str(node.target), shapes, _lies(given), live, self.required)
        write_row = row(call.target)
        assert write_row is not None, call.target
        try:
            return self._declared(call, write_row(call, *args, **named), node)
        except NestwrightError as e:
            raise _placed(e, node) from e

    def _declared(self, call: AtenCall, found: Any, node: torch.fx.Node) -> Any:
        """The results of a row in the types and sizes that the graph declares."""
        declared = node.meta.get("val")
        if is_symbol(declared):
            self.sizes.learn_number(declared, found)
            return declared
        if isinstance(found, Term):
            return self._checked(found, _results(declared)[0], node)
        if isinstance(found, list | tuple):
            return [
                self._checked(t, value, node) if isinstance(t, Term) else t
                for t, value in zip(found, _results(declared), strict=True)
            ]
        return found

    def _checked(self, term: Term, value: Any, node: torch.fx.Node) -> Term:
        if value is None:
            return term
        if is_open(value) or bounded.varying(term):
            term = self.sizes.declared(term, value)
        shape = self.sizes.shape(value)
        assert shape is not None
        if term.dims != shape.dims:
            why = f"it has {list(term.dims)}, the graph declares {list(shape.dims)}"
            raise VerifyError("the row of an operator writes another size", why, f"{node.target}")
        return term.to(shape.dtype)


class _Subgraph:
    """A graph inside a graph: called with terms, it writes itself where they are."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        self.gm = gm

    def __call__(self, graph: Graph, *terms: Any, required: Required = None) -> list[Term]:
        names = [n.name for n in self.gm.graph.nodes if n.op == "placeholder"]
        return write(graph, self.gm, dict(zip(names, terms, strict=True)), required)

    def for_each(
        self,
        graph: Graph,
        axes: Sequence[tuple[int, ...]],
        *terms: Any,
        required: Required = None,
    ) -> list[Term]:
        """Call a graph of scalars for all elements of arrays, as nested ``torch.vmap`` does.

        ``axes[k]`` lists the dimensions of the result, outermost first, that the term ``k`` has;
        terms without any are the same for all elements.
        """
        from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
        from torch.func import vmap
        from torch.fx.experimental.proxy_tensor import make_fx

        places = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        examples = [_example(n, t) for n, t in zip(places, terms, strict=True)]
        batched: Any = self.gm
        for level in sorted({k for own in axes for k in own}, reverse=True):
            batched = vmap(batched, in_dims=tuple(0 if level in own else None for own in axes))
        with TransformGetItemToIndex():
            traced = make_fx(batched, decompositions(), tracing_mode="fake")(*examples)
        traced.graph.eliminate_dead_code()
        check(traced, "for each element")
        names = [n.name for n in traced.graph.nodes if n.op == "placeholder"]
        return write(graph, traced, dict(zip(names, terms, strict=True)), required)


def _example(node: torch.fx.Node, given: Any) -> Any:
    """A tensor of the shape of a term and the type that a placeholder has."""
    import torch

    value = node.meta["val"]
    return torch.empty(given.dims, dtype=value.dtype) if isinstance(given, Term) else given


def _of_base(node: torch.fx.Node) -> tuple[Any, ...]:
    """Return a call's arguments; a view by places in memory is taken of the tensor that owns it.

    Such a view may reach what a slice before it left out.
    """
    given: tuple[Any, ...] = node.args
    if str(node.target) != "aten.as_strided.default":
        return given
    view, *rest = given
    base, memory = view, _memory(view)
    while getattr(base, "args", ()) and memory is not None and _memory(base.args[0]) == memory:
        base = base.args[0]
    lies = _lies(given)
    if base is view or lies is None:
        return given
    return (base, *rest) if len(rest) > 2 and rest[2] is not None else (base, *rest[:2], lies[1])


def _memory(argument: Any) -> int | None:
    """Return what tells the memory of a node's tensor from others'; None for what has none."""
    value = argument.meta.get("val") if hasattr(argument, "meta") else None
    storage = getattr(value, "untyped_storage", None)
    return None if storage is None else int(storage()._cdata)


def _lies(args: tuple[Any, ...]) -> tuple[tuple[int, ...], int] | None:
    """Return the strides and the offset of the first argument, if the graph knows them."""
    value = args[0].meta.get("val") if args and hasattr(args[0], "meta") else None
    if value is None or not hasattr(value, "storage_offset"):
        return None
    if any(map(is_symbol, (*value.stride(), value.storage_offset()))):
        return None
    return tuple(int(n) for n in value.stride()), int(value.storage_offset())


def source_of(node: torch.fx.Node) -> str:
    """Return ``file:line`` of the line that made a node; nothing if it is not known."""
    found = _SOURCE.findall(node.meta.get("stack_trace") or "")
    return ":".join(found[-1]) if found else ""


def _metadata(node: torch.fx.Node) -> Metadata:
    file, _, line = source_of(node).rpartition(":")
    return Metadata(str(node.target), node.name, file, int(line or 0))


def _placed(error: NestwrightError, node: torch.fx.Node) -> NestwrightError:
    """The error with the node that it is about."""
    place = f"{node.name} = {node.target}"
    source = source_of(node)
    where = f"{place} ({source})" if source else place
    if isinstance(error, UnsupportedError):
        finding = Finding(str(node.target), node.name, "", error.why, error.hint, source)
        return UnsupportedError(error.what, error.why, where, error.hint, (finding,))
    return type(error)(error.what, error.why, where, error.hint)


def _results(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def unreadable(value: Any) -> str:
    """Return why a value of the graph has no shape in HLO; nothing if it has, or is no tensor."""
    import torch

    if is_symbol(value) and not is_open(value):
        return "its value is symbolic; export with static shapes (dynamic=False)"
    if not isinstance(value, torch.Tensor):
        return ""
    if value.layout != torch.strided or value.is_quantized:
        return "only dense tensors are compiled"
    if any(isinstance(d, torch.SymInt) and not _is_value(d) for d in value.shape):
        return "its shape is symbolic; export with static shapes (dynamic=False)"
    if element_type(value.dtype) is None:
        return f"HLO has no type {value.dtype}"
    return ""


def _is_value(size: Any) -> bool:
    """True for a size that is a number, or that nothing but values of tensors decides."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    symbols = size.node.expr.free_symbols
    return bool(symbols <= free_unbacked_symbols(size))


def _subgraphs(node: torch.fx.Node) -> Iterator[torch.fx.GraphModule]:
    import torch

    for argument in node.all_input_nodes:
        if argument.op == "get_attr":
            found = _named(node.graph.owning_module, str(argument.target))
            if isinstance(found, torch.fx.GraphModule):
                yield found


def _named(module: Any, target: str) -> Any:
    for part in target.split("."):
        module = getattr(module, part, None)
    return module
