"""StableHLO text -> HloModule.

The text is MLIR as JAX, TensorFlow and torch print it, in the operations' own forms or in the
generic one. The entry is ``@main``, or the one public function, or the one function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ...hlo.nodes import AnyShape, HloModule, Raw, Shape
from ...hlo.rewrite import reachable
from .lexer import Tokens
from .lower import Lowering, is_settled
from .operations import TABLE
from .parser import Parser
from .pretty import pretty
from .syntax import Function, Module, Type, is_value
from .types import show_type


def parse(text: str, source: str = "<text>") -> HloModule:
    """Read a module.

    ``ParseError`` says where a text cannot be read or does not hang together
    (``source:line:column``), ``UnsupportedError`` where it means what HLO cannot say.
    """
    parser = Parser(text, source, pretty)
    module = parser.module()
    entry = _entry(module, parser.tokens)
    low = Lowering(module, parser.tokens, TABLE)
    shapes = [_argument(parser.tokens, entry, n) for n in range(len(entry.body.arguments))]
    computation = low.function(entry, shapes, entry.place)
    kept = reachable(computation)
    known = set(kept)
    order = tuple(c for c in low.computations if c in known)
    name = module.name or entry.name
    return HloModule(_clean(name), order, computation, _header(module, entry))


def _entry(module: Module, tokens: Tokens) -> Function:
    functions = module.functions
    if "main" in functions:
        return functions["main"]
    public = [f for f in functions.values() if f.public]
    if len(public) == 1 or len(functions) == 1:
        return (public or list(functions.values()))[0]
    names = ", ".join(f"`{f.name}`" for f in public[:8]) or "none is public"
    why = f"no function is `main`, and {names} may all be the entry"
    tokens.fail_at(next(iter(functions.values())).place, "the module has no entry", why)


def _argument(tokens: Tokens, entry: Function, n: int) -> AnyShape:
    """The shape of an argument of the entry, in the layout that is asked for."""
    name, kind = entry.body.arguments[n]
    if not is_settled(kind):
        _refuse_open(tokens, entry, name, kind)
    attrs = entry.argument_attrs[n] if n < len(entry.argument_attrs) else {}
    mode = attrs.get("mhlo.layout_mode")
    if isinstance(kind, Shape) and isinstance(mode, str) and mode.startswith("{"):
        order = mode.strip("{}").partition(":")[0].split(",")
        if sorted(order) == sorted(map(str, range(kind.rank))):
            return replace(kind, layout=tuple(map(int, order)))
    assert not is_settled(kind) or is_value(kind)
    return kind  # type: ignore[return-value]


def _refuse_open(tokens: Tokens, entry: Function, name: str, kind: Type) -> None:
    what = f"argument `{name}` of `{entry.name}` is {show_type(kind)}"
    if is_value(kind):
        why = "its size has no bound"
        hint = "export the model with the shapes of its arguments known, or with bounds"
    else:
        why, hint = "HLO has no such type", "lower the module to StableHLO without it"
    tokens.refuse_at(entry.place, what, why, hint)


def _clean(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_.-" else "_" for c in name) or "module"


def _header(module: Module, entry: Function) -> Mapping[str, Any]:
    """What the text says of devices and of arguments that results may take the place of."""
    found: dict[str, Any] = {}
    for name, ours in (("mhlo.num_replicas", "replica_count"), ("mhlo.num_partitions",) * 2):
        number = module.attrs.get(name, 1)
        if isinstance(number, int) and number > 1:
            found[ours.removeprefix("mhlo.")] = Raw(str(number))
    aliases, donors = [], []
    single = len(entry.type.results) == 1
    for n, attrs in enumerate(entry.argument_attrs):
        target = attrs.get("tf.aliasing_output")
        if isinstance(target, int) and 0 <= target < len(entry.type.results):
            place = "{}" if single else f"{{{target}}}"
            aliases.append(f"{place}: ({n}, {{}}, may-alias)")
        if attrs.get("jax.buffer_donor") is True:
            donors.append(f"({n}, {{}})")
    if aliases:
        found["input_output_alias"] = Raw("{ " + ", ".join(aliases) + " }")
    if donors:
        found["buffer_donor"] = Raw("{ " + ", ".join(donors) + " }")
    return MappingProxyType(found)
