"""StableHLO -> HLO: functions and regions become computations, operations instructions.

What an operation becomes is in the table of ``operations``; here is what all of them share. A
region may use values from around it; HLO's computations may not, so that loops and branches get
them as further operands, and constants are written again inside.

Functions whose types leave sizes open are read once for every list of argument shapes they are
called with, and of arguments that are known. Sizes that follow from constants are resolved on the
way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ....arrays import Array
from ....dtypes import from_numpy, pred, s64
from ....errors import VerifyError
from ....hlo.analysis.verify import check_instruction
from ....hlo.nodes import AnyShape, Computation, Instruction, Shape, TokenShape, TupleShape
from ....hlo.ops.registry import definition, infer
from ....hlo.shape_text import UNKNOWN, show_shape
from ...lax.graph import CHEAP, Graph, hlo_name, is_cheap
from ..mlir.dense import dense_value
from ..mlir.lexer import Tokens
from ..mlir.locations import Origins
from ..mlir.syntax import Dense, Dialect, MlirFunction, MlirModule, MlirOp, MlirRegion, Type
from ..mlir.types import show_type

Results: TypeAlias = "Instruction | Sequence[Instruction]"
Handler: TypeAlias = "Callable[[OpSite], Results]"

MAX_NESTED = 128
RETURNS = frozenset({"stablehlo.return", "mhlo.return", "func.return", "sdy.return", "chlo.return"})


class StablehloLowering:
    """One module on its way. ``table`` says what becomes of each operation."""

    def __init__(self, module: MlirModule, tokens: Tokens, table: Mapping[str, Handler]) -> None:
        self.module = module
        self.tokens = tokens
        self.table = table
        self.origins = Origins(module.locations)
        self.computations: list[Computation] = []
        self.reducers: dict[object, Computation] = {}
        self._functions: dict[object, Computation] = {}
        self._running: list[str] = []
        self._depth = 0
        self._names: dict[str, int] = {}
        self._free: dict[MlirRegion, tuple[str, ...]] = {}

    def name(self, base: str) -> str:
        """A name that no computation of the module has."""
        clean = hlo_name(base)
        count = self._names.get(clean, -1) + 1
        self._names[clean] = count
        return clean if not count else self.name(f"{clean}.{count}")

    def done(self, computation: Computation) -> Computation:
        """Add a finished computation to the module, and return it."""
        self.computations.append(computation)
        return computation

    def function(
        self,
        function: MlirFunction,
        shapes: Sequence[AnyShape],
        place: int,
        known: Sequence[Array | None] = (),
    ) -> Computation:
        """The computation of a function for arguments of these shapes.

        Where its type leaves sizes open, arguments of ``known`` values are constants inside.
        """
        values = known or [None] * len(shapes)
        key = (function.name, *shapes, *(v if v is None else tuple(v.flat) for v in values))
        if (made := self._functions.get(key)) is not None:
            return made
        if function.name in self._running:
            self.tokens.refuse_at(place, f"`{function.name}` calls itself", "HLO cannot")
        self._running.append(function.name)
        builder = Graph(self.name(function.name))
        for (name, _), shape, value in zip(function.body.arguments, shapes, values, strict=True):
            argument = builder.parameter(shape, name)
            if value is not None:
                argument = builder.write("constant", shape, like=name, attrs={"literal": value})
            self.define(builder, name, argument, function.place)
        results = self.block(builder, function.body)
        self.check_results(function, results)
        self._running.pop()
        made = self._functions[key] = self.done(builder.finish(results))
        return made

    def check_results(self, function: MlirFunction, results: Sequence[Instruction]) -> None:
        """Raise a ``ParseError`` if a function's results do not fit its type."""
        wanted = function.type.results
        fits = len(wanted) == len(results) and all(
            fits_type(r.shape, t) for r, t in zip(results, wanted, strict=True)
        )
        if not fits:
            given = ", ".join(show_shape(r.shape) for r in results)
            why = f"it returns ({given}), its type says ({', '.join(map(show_type, wanted))})"
            self.tokens.fail_at(function.place, f"the type of `{function.name}` does not fit", why)

    def define(self, builder: Graph, name: str, value: Instruction, place: int) -> None:
        """Name a value; a ``ParseError`` if the name is taken."""
        if name in builder.values:
            self.tokens.fail_at(place, f"`{name}` is defined twice")
        builder.values[name] = value

    def block(self, builder: Graph, region: MlirRegion) -> list[Instruction]:
        """Write the operations of a region; what it returns."""
        self._depth += 1
        if self._depth > MAX_NESTED:
            what = "regions and calls are nested too deep"
            self.tokens.fail_at(region.place, what, f"over {MAX_NESTED} levels")
        for n, op in enumerate(region.ops):
            site = OpSite(self, builder, op)
            if op.name in RETURNS:
                if n + 1 < len(region.ops):
                    self.tokens.fail_at(op.place, f"`{op.name}` is not the last operation")
                self._depth -= 1
                return list(site.operands)
            handler = self.table.get(op.name)
            if handler is None:
                site.unknown()
            site.bind(handler(site))
        self.tokens.fail_at(region.place, "a region returns nothing", "it must end in a `return`")

    def free(self, region: MlirRegion) -> tuple[str, ...]:
        """The names that a region uses and does not define, in order."""
        if (known := self._free.get(region)) is None:
            own = {name for name, _ in region.arguments}
            found: dict[str, None] = {}
            for op in region.ops:
                used = [*op.operands, *(n for r in op.regions for n in self.free(r))]
                found.update((n, None) for n in used if n not in own and f"{n}#0" not in own)
                own.update(op.results)
            known = self._free[region] = tuple(found)
        return known


def is_open(function: MlirFunction) -> bool:
    """True if a function's type leaves a size open."""
    return not all(map(is_settled, function.type.inputs + function.type.results))


def fits_type(shape: AnyShape, kind: Type) -> bool:
    """True if a shape is of a type: the same, but for sizes that the type leaves open."""
    match shape, kind:
        case Shape(dtype=a, dims=m), Shape(dtype=b, dims=n) if a == b and len(m) == len(n):
            return m == n or all(y in (UNKNOWN, x) for x, y in zip(m, n, strict=True))
        case TupleShape(elements=a), TupleShape(elements=b) if len(a) == len(b):
            return all(fits_type(x, y) for x, y in zip(a, b, strict=True))
        case _:
            return isinstance(shape, TokenShape) and isinstance(kind, TokenShape)


def is_settled(kind: Type) -> bool:
    """True if a type is a shape of HLO whose sizes are all known."""
    match kind:
        case Shape(dims=dims):
            return UNKNOWN not in dims
        case TupleShape(elements=elements):
            return all(map(is_settled, elements))
        case _:
            return isinstance(kind, TokenShape)


class OpSite:
    """One operation while it becomes instructions: its operands and attributes, and errors."""

    depth = 0

    def __init__(self, low: StablehloLowering, builder: Graph, op: MlirOp) -> None:
        self.low = low
        self.builder = builder
        self.op = op
        self.operands = [self.value(name) for name in op.operands]
        self.metadata = low.origins.metadata(op.location)
        self.like = op.results[0] if op.results else ""
        for n, kind in enumerate(op.operand_types or ()):
            self.check_type(self.operands[n], kind, f"`{op.operands[n]}`")

    def check_type(self, value: Instruction, kind: Type, what: str) -> None:
        """Raise a ``ParseError`` if a value does not fit the type that the text gives it."""
        if not fits_type(value.shape, kind):
            self.fail(f"{what} is {show_shape(value.shape)}, the type says {show_type(kind)}")

    def value(self, name: str) -> Instruction:
        """The value of a name of the text."""
        found = self.builder.values.get(name) or self.builder.values.get(f"{name}#0")
        if found is None:
            close = get_close_matches(name, self.builder.values, 1)
            hint = f"did you mean `{close[0]}`?" if close else ""
            what, why = f"`{name}` is not defined", "no operation above gives this value"
            self.low.tokens.fail_at(self.op.place, what, why, hint)
        return found

    # errors

    def fail(self, why: str, hint: str = "") -> NoReturn:
        """Raise a ``ParseError``: the operation does not hang together."""
        self.low.tokens.fail_at(self.op.place, f"`{self.op.name}` is not well formed", why, hint)

    def refuse(self, why: str, hint: str = "") -> NoReturn:
        """Raise an ``UnsupportedError``: the operation means something that HLO cannot say."""
        self.low.tokens.refuse_at(self.op.place, f"`{self.op.name}` cannot be read", why, hint)

    def unknown(self) -> NoReturn:
        """Raise an error for an operation that the table does not have."""
        dialect = self.op.name.partition(".")[0]
        if dialect in ("stablehlo", "mhlo", "chlo"):
            close = get_close_matches(self.op.name, self.low.table, 1)
            hint = f"did you mean `{close[0]}`?" if close else ""
            what = f"unknown operation `{self.op.name}`"
            self.low.tokens.fail_at(self.op.place, what, hint=hint)
        why = "only StableHLO, CHLO, MHLO, func and Shardy operations are read"
        self.refuse(why, "lower the module to StableHLO first")

    # attributes

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute; ``ParseError`` if it is missing and has no default."""
        found = self.op.attrs.get(name, default)
        if found is None:
            self.fail(f"attribute `{name}` is missing")
        return found

    def ints(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list of integers, however it is written: a nested one is flattened."""
        return self.as_ints(self.attr(name, default), name)

    def as_ints(self, value: Any, name: str) -> tuple[int, ...]:
        """Return an attribute of any form as a flat tuple of integers."""
        if isinstance(value, Dense):
            shape = value.type
            if not isinstance(shape, Shape) or shape.size > 1 << 20:
                self.fail(f"attribute `{name}` is too large")
            if shape.dtype not in (s64, pred):
                self.fail(f"attribute `{name}` is of {shape.dtype}, not of 64-bit integers")
            array = np.broadcast_to(self.dense(value), shape.dims)
            return tuple(int(x) for x in array.reshape(-1))
        flat: list[int] = []
        for v in value if isinstance(value, tuple) else (None,):
            if isinstance(v, tuple):
                flat += self.as_ints(v, name)
            elif isinstance(v, int):
                flat.append(int(v))
            else:
                self.fail(f"attribute `{name}` is not a list of integers")
        return tuple(flat)

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute."""
        value = self.attr(name, default)
        if not isinstance(value, int):
            self.fail(f"attribute `{name}` is not an integer")
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a Boolean attribute."""
        value = self.attr(name, default)
        if not isinstance(value, bool):
            self.fail(f"attribute `{name}` is neither true nor false")
        return value

    def word(self, name: str, default: str | None = None) -> str:
        """A word, bare or as ``#stablehlo<kind WORD>``."""
        value = self.attr(name, default)
        if isinstance(value, Dialect):
            value = value.fields.get("")
        if not isinstance(value, str):
            self.fail(f"attribute `{name}` is not a word")
        return str(value)

    def fields(self, name: str) -> Mapping[str, Any]:
        """The fields of ``#stablehlo.kind<field = value, ..>``."""
        value = self.attr(name)
        if not isinstance(value, Dialect):
            self.fail(f"attribute `{name}` is not readable")
        return value.fields

    def dense(self, value: Dense) -> Array:
        """Return the array of a literal."""
        return dense_value(self.low.tokens, value, self.low.module.resources)

    # results

    def declared(self, n: int = 0) -> Type:
        """The type that the text gives result ``n``."""
        if n >= len(self.op.result_types):
            self.fail(f"the type of result {n} is missing")
        return self.op.result_types[n]

    def settled(self, n: int = 0) -> AnyShape:
        """The shape of result ``n``; refused if the text leaves a size open."""
        kind = self.declared(n)
        if not is_settled(kind):
            self.open_type(kind)
        assert isinstance(kind, Shape | TupleShape | TokenShape)
        return kind

    def open_type(self, kind: Type) -> NoReturn:
        """Raise an ``UnsupportedError`` for a type with open sizes, or that HLO does not have."""
        if isinstance(kind, Shape | TupleShape):
            why = f"{show_type(kind)} has a size that does not follow from constants"
            self.refuse(why, "export the model with the shapes of its arguments known")
        self.refuse(f"HLO has no type {show_type(kind)}", "quantize by arithmetic on integers")

    def array(self, n: int = 0) -> Shape:
        """The shape of result ``n``, an array."""
        found = self.settled(n)
        if not isinstance(found, Shape):
            self.fail(f"result {n} is not an array")
        return found

    def element(self, n: int = 0) -> Shape:
        """The type of result ``n``, an array whose sizes may be open."""
        found = self.declared(n)
        if not isinstance(found, Shape):
            self.open_type(found)
        return found

    def make(self, opcode: str, operands: Sequence[Instruction], **attrs: Any) -> Instruction:
        """An instruction of the shape that the text gives, or that follows where it leaves it."""
        shapes = [self.op.result_types[n] for n in range(len(self.op.result_types))]
        if len(shapes) == 1 and is_settled(shapes[0]):
            return self.add(opcode, self.settled(), operands, **attrs)
        if len(shapes) != 1 and all(map(is_settled, shapes)):
            parts = tuple(self.settled(n) for n in range(len(shapes)))
            return self.add(opcode, TupleShape(parts), operands, **attrs)
        if definition(opcode).shape is None:
            self.settled()
        found = self.infer(opcode, operands, **attrs)
        if isinstance(found.shape, Shape) and isinstance(shapes[0], Shape):
            wanted = replace(found.shape, dtype=shapes[0].dtype)
            if wanted != found.shape:  # a dot that accumulates in a wider type
                self.builder.instructions.pop()
                return self.add(opcode, wanted, operands, **attrs)
        return found

    def infer(self, opcode: str, operands: Sequence[Instruction], **attrs: Any) -> Instruction:
        """An instruction of the shape that its operands give."""
        try:
            shape = infer(opcode, [o.shape for o in operands], attrs)
        except VerifyError as error:
            self.fail(error.why or error.what)
        return self.add(opcode, shape, operands, **attrs)

    def add(
        self, opcode: str, shape: AnyShape, operands: Sequence[Instruction] = (), **attrs: Any
    ) -> Instruction:
        """An instruction of this shape, checked."""
        found = self.builder.write(
            opcode, shape, operands, like=self.like, metadata=self.metadata, attrs=attrs
        )
        try:
            check_instruction(found)
        except VerifyError as error:
            self.fail(error.why or error.what)
        return found

    def constant(self, value: Array) -> Instruction:
        """A constant of an array's value; one number for many elements is broadcast."""
        shape = Shape(from_numpy(value.dtype), value.shape)
        return self.add("constant", shape, literal=np.asarray(value, order="C"))

    def known(self, value: Instruction) -> Array | None:
        """Return the value if constants alone give it and it is small."""
        return self.builder.known(value)

    def results(self, value: Instruction) -> Results:
        """The value, or the elements of the tuple where the operation has several results."""
        count = len(self.op.result_types)
        if count == 1:
            return value
        return self.builder.unpack(value, count)

    def bind(self, results: Results) -> None:
        """Give the results the names that the text gives them."""
        found = [results] if isinstance(results, Instruction) else list(results)
        names = self.op.results
        if names and len(names) != len(found):
            self.fail(f"{len(names)} results are named, the operation has {len(found)}")
        for n, (value, kind) in enumerate(zip(found, self.op.result_types, strict=False)):
            self.check_type(value, kind, f"result {n}")
        for name, value in zip(names, found, strict=False):
            self.low.define(self.builder, name, value, self.op.place)

    # sizes

    def sizes(self, value: Instruction, what: str) -> tuple[int, ...]:
        """A list of integers that a value must be known to have."""
        known = self.builder.known(value)
        if known is None or known.dtype.kind not in "iu":
            why = f"{what} does not follow from constants"
            self.refuse(why, "export the model with the shapes of its arguments known")
        return tuple(int(n) for n in known.reshape(-1))

    # regions

    def region(self, n: int) -> MlirRegion:
        """Return region ``n``; a ``ParseError`` if it is missing."""
        if n >= len(self.op.regions):
            self.fail(f"region {n} is missing")
        return self.op.regions[n]

    def scalars(self, region: MlirRegion, name: str) -> Computation:
        """The computation of a region that sees only its arguments and constants."""
        low = self.low
        builder = Graph(low.name(name))
        for argument, kind in region.arguments:
            if not is_settled(kind):
                self.open_type(kind)
            assert isinstance(kind, Shape | TupleShape | TokenShape)
            value = builder.parameter(kind, argument)
            low.define(builder, argument, value, self.op.place)
        for free in low.free(region):
            low.define(builder, free, self._inside(builder, free), self.op.place)
        return low.done(builder.finish(low.block(builder, region)))

    def _inside(self, builder: Graph, name: str) -> Instruction:
        value = self.value(name)
        if is_cheap(value):
            return builder.copy(value)
        known = self.builder.known(value)
        if known is None:
            why = f"its region uses `{name}` from around it, which is not a constant"
            self.refuse(why, "pass the value as an operand")
        shape = Shape(from_numpy(known.dtype), known.shape)
        return builder.write("constant", shape, like=name, attrs={"literal": known})

    def captured(self, *regions: MlirRegion) -> tuple[list[str], list[str]]:
        """The names that regions use from around: those to be handed in, those to be copied.

        What small values are known to be is copied, so that sizes are known inside as well.
        """
        names = dict.fromkeys(n for r in regions for n in self.low.free(r))
        cheap = [n for n in names if self._is_copied(self.value(n))]
        return [n for n in names if n not in cheap], cheap

    def _is_copied(self, value: Instruction) -> bool:
        known = None if is_cheap(value) else self.builder.known(value)
        return is_cheap(value) or (known is not None and known.size <= CHEAP)

    def state(
        self,
        region: MlirRegion,
        name: str,
        shapes: Sequence[AnyShape],
        taken: Sequence[str],
        copied: Sequence[str],
    ) -> tuple[Graph, list[Instruction]]:
        """A computation of one value, of which the region's arguments and ``taken`` are parts.

        Returns it unfinished, with the values that the region returns.
        """
        low, builder = self.low, Graph(self.low.name(name))
        names = [*(n for n, _ in region.arguments), *taken]
        if len(names) != len(shapes):
            self.fail(f"a region takes {len(region.arguments)} values, not {len(shapes)}")
        if len(shapes) == 1:
            parts = [builder.parameter(shapes[0], names[0])]
        else:
            parts = builder.unpack(builder.parameter(TupleShape(tuple(shapes))), len(shapes))
        for part_name, part in zip(names, parts, strict=True):
            low.define(builder, part_name, part, self.op.place)
        for free in copied:
            if free not in builder.values:
                low.define(builder, free, self._inside(builder, free), self.op.place)
        return builder, low.block(builder, region)
