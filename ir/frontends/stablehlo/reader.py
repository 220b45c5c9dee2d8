"""StableHLO text -> HloModule.

The text is MLIR as JAX, TensorFlow and torch print it, in the operations' own forms or in the
generic one. The entry is ``@main``, or the one public function, or the one function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...hlo.nodes import AnyShape, HloModule, Shape, TokenShape, TupleShape
from ...hlo.rewrite import reachable
from ...hlo.shape_text import UNKNOWN
from ..lax.graph import hlo_name
from ..registry import Shapes
from .header import header
from .mlir.lexer import Tokens
from .mlir.parser import Parser
from .mlir.pretty import pretty
from .mlir.syntax import ForeignType, FunctionType, MlirFunction, MlirModule
from .mlir.types import show_type
from .operations.table import TABLE
from .operations.to_hlo import StablehloLowering, is_settled


def parse(text: str, source: str = "<text>", shapes: Shapes | None = None) -> HloModule:
    """Read a module. ``shapes`` settle sizes that the types of the entry's arguments leave open.

    ``ParseError`` says where a text cannot be read or does not hang together
    (``source:line:column``), ``UnsupportedError`` where it means what HLO cannot say.
    """
    parser = Parser(text, source, pretty)
    module = parser.module()
    entry = _entry(module, parser.tokens)
    low = StablehloLowering(module, parser.tokens, TABLE)
    sizes = shapes or {}
    arguments = [
        _argument(parser.tokens, entry, n, sizes.get(n, sizes.get(argument_name(name))))
        for n, (name, _) in enumerate(entry.body.arguments)
    ]
    computation = low.function(entry, arguments, entry.place)
    kept = reachable(computation)
    known = set(kept)
    order = tuple(c for c in low.computations if c in known)
    name = module.name or entry.name
    return HloModule(hlo_name(name), order, computation, header(module, entry, computation))


def _entry(module: MlirModule, tokens: Tokens) -> MlirFunction:
    functions = module.functions
    if "main" in functions:
        return functions["main"]
    public = [f for f in functions.values() if f.public]
    if len(public) == 1 or len(functions) == 1:
        return (public or list(functions.values()))[0]
    names = ", ".join(f"`{f.name}`" for f in public[:8]) or "none is public"
    why = f"no function is `main`, and {names} may all be the entry"
    tokens.fail_at(next(iter(functions.values())).place, "the module has no entry", why)


def declared(text: str, source: str) -> dict[str, tuple[int | None, ...]]:
    """Return the sizes of the entry's arguments as their types have them; errors as ``parse``."""
    parser = Parser(text, source, pretty)
    entry = _entry(parser.module(), parser.tokens)
    return {
        argument_name(name): tuple(None if d == UNKNOWN else d for d in kind.dims)
        for name, kind in entry.body.arguments
        if isinstance(kind, Shape)
    }


def argument_name(name: str) -> str:
    """Return the name of the parameter that an argument becomes."""
    return hlo_name(name.removeprefix("%"))


def _argument(
    tokens: Tokens, entry: MlirFunction, n: int, sizes: Sequence[int | None] | None
) -> AnyShape:
    """The shape of an argument of the entry, with open sizes as given."""
    name, kind = entry.body.arguments[n]
    if isinstance(kind, Shape) and sizes is not None and len(sizes) == kind.rank:
        pairs = zip(kind.dims, sizes, strict=True)
        dims = tuple(s if d == UNKNOWN and s is not None else d for d, s in pairs)
        if UNKNOWN not in dims and UNKNOWN in kind.dims:
            return replace(kind, dims=dims, dynamic=())
    match name, kind:
        case (_, Shape() | TupleShape() | TokenShape() as shape) if is_settled(shape):
            return shape
        case (name, ForeignType() | FunctionType() as kind):
            why, hint = "HLO has no such type", "lower the module to StableHLO without it"
        case (name, kind):
            why = "its size has no bound"
            hint = f"give shapes={{{n}: sizes}}, or export the model with its shapes known"
    what = f"argument `{name}` of `{entry.name}` is {show_type(kind)}"
    tokens.refuse_at(entry.place, what, why, hint)
