"""StableHLO text -> HloModule.

The text is MLIR as JAX, TensorFlow and torch print it, in the operations' own forms or in the
generic one. The entry is ``@main``, or the one public function, or the one function.
"""

from __future__ import annotations

from ...hlo.nodes import AnyShape, HloModule, Shape, TokenShape, TupleShape
from ...hlo.rewrite import reachable
from ..lax.graph import hlo_name
from .header import header
from .mlir.lexer import Tokens
from .mlir.parser import Parser
from .mlir.pretty import pretty
from .mlir.syntax import ForeignType, FunctionType, MlirFunction, MlirModule
from .mlir.types import show_type
from .operations.table import TABLE
from .operations.to_hlo import StablehloLowering, is_settled


def parse(text: str, source: str = "<text>") -> HloModule:
    """Read a module.

    ``ParseError`` says where a text cannot be read or does not hang together
    (``source:line:column``), ``UnsupportedError`` where it means what HLO cannot say.
    """
    parser = Parser(text, source, pretty)
    module = parser.module()
    entry = _entry(module, parser.tokens)
    low = StablehloLowering(module, parser.tokens, TABLE)
    shapes = [_argument(parser.tokens, entry, n) for n in range(len(entry.body.arguments))]
    computation = low.function(entry, shapes, entry.place)
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


def _argument(tokens: Tokens, entry: MlirFunction, n: int) -> AnyShape:
    """The shape of an argument of the entry."""
    match entry.body.arguments[n]:
        case (_, Shape() | TupleShape() | TokenShape() as shape) if is_settled(shape):
            return shape
        case (name, ForeignType() | FunctionType() as kind):
            why, hint = "HLO has no such type", "lower the module to StableHLO without it"
        case (name, kind):
            why = "its size has no bound"
            hint = "export the model with the shapes of its arguments known, or with bounds"
    what = f"argument `{name}` of `{entry.name}` is {show_type(kind)}"
    tokens.refuse_at(entry.place, what, why, hint)
