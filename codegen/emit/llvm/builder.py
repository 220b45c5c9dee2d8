"""Typed LLVM instructions: constants, arithmetic, comparisons, conversions, shuffles, intrinsics.

Operands are brought to the same number of lanes; what is known at once (a selection by a literal,
arithmetic on integers that are known in every lane) is folded. Floats here are f16, f32 and f64;
``bf16`` values are 16-bit integers to LLVM and must be extended first (see ``emit.llvm.convert``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir.dtypes import DType, f32, f64, pred, s8, s16, s32, s64
from ....ir.loop.nodes import Scalar
from ....ir.target import Target
from .core import Function, IRValue, element_type, literal_text, mangle, register_type
from .estimates import CALLED, ESTIMATES, models_text
from .fold import fold_binary, fold_cast, fold_compare, fold_select, lane_literals, wrap

_SATURATED = "llvm.nvvm.saturate.f"
SIGNED = {8: s8, 16: s16, 32: s32, 64: s64}


class IRBuilder:
    """Emits instructions into ``function``, the open one, and collects declarations."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.processor = target.processor
        self.function: Function = Function("none", "", target)
        self.declarations: dict[str, str] = {}
        self.has_fma = "fma" in target.features or target.machine == "aarch64"
        self.has_f16 = self.processor.machine != "x86_64" or "f16c" in self.processor.features
        self.contracts = True  # a product and a sum may become one fma
        self.libm = True  # code may call the C library
        self.final_dtype: DType | None = None  # the narrower type that f32 results are rounded to
        self.nvidia = False  # the target is an NVIDIA GPU
        self.f8_pairs = False  # it converts 8-bit floats in pairs, or simulates that
        self.estimates = False  # it has approximate instructions, or simulates them

    # Operands.

    def const(self, value: Scalar, dtype: DType, lanes: int = 0) -> IRValue:
        """Return a literal, the same in every lane."""
        text = literal_text(value, dtype)
        if lanes:
            text = f"splat ({register_type(dtype, 0)} {text})"
        return IRValue(text, dtype, lanes, 0, value)

    def const_lanes(self, numbers: Sequence[int], dtype: DType, lanes: int) -> IRValue:
        """Return a literal with these lanes; for ``pred``, nonzero is true."""
        if len(set(numbers)) == 1:
            one = bool(numbers[0]) if dtype == pred else numbers[0]
            return self.const(one, dtype, lanes)
        type_ = register_type(dtype, 0)
        items = ", ".join(f"{type_} {literal_text(n, dtype)}" for n in numbers)
        return IRValue(f"<{items}>", dtype, lanes, each=tuple(numbers))

    def like(self, value: Scalar, x: IRValue) -> IRValue:
        """Return a literal of the type of ``x``."""
        return self.const(value, x.dtype, x.lanes)

    def broadcast(self, x: IRValue, lanes: int) -> IRValue:
        """Broadcast a scalar to ``lanes`` lanes; return a vector unchanged."""
        if not lanes or x.lanes:
            return x
        if x.literal is not None:
            return self.const(x.literal, x.dtype, lanes)
        type_ = register_type(x.dtype, lanes)
        one = self.pure(f"insertelement {type_} poison, {x}, i64 0", x.dtype, lanes, x.depth)
        text = f"shufflevector {one}, {type_} poison, <{lanes} x i32> zeroinitializer"
        return self.pure(text, x.dtype, lanes, one.depth)

    def match_lanes(self, *values: IRValue) -> tuple[IRValue, ...]:
        """Broadcast scalars so that all values have the lanes of the widest."""
        lanes = max([v.lanes for v in values])
        if all([v.lanes == lanes for v in values]):
            return values
        return tuple([self.broadcast(v, lanes) for v in values])

    def pure(self, text: str, dtype: DType, lanes: int, depth: int) -> IRValue:
        """Emit an instruction without side effects."""
        return self.function.pure(text, dtype, lanes, depth)

    # Arithmetic.

    def binary(self, name: str, a: IRValue, b: IRValue) -> IRValue:
        """Emit a binary instruction; ``name`` is LLVM's, flags included: ``fadd contract``."""
        if a.lanes != b.lanes:
            a, b = self.match_lanes(a, b)
        folded = fold_binary(name, a, b)
        if folded is not None:
            return self.const_lanes(folded, a.dtype, a.lanes)
        if (name == "add" and b.literal == 0) or (name in ("mul", "sdiv") and b.literal == 1):
            return a
        known, other = (a, b) if isinstance(a.literal, bool) else (b, a)
        if name == "and" and isinstance(known.literal, bool):
            return other if known.literal else known
        text = f"{name} {a}, {b.text}"
        return self.pure(text, a.dtype, a.lanes, max(a.depth, b.depth))

    def unary(self, name: str, a: IRValue) -> IRValue:
        """Emit a unary instruction such as ``fneg``."""
        return self.pure(f"{name} {a}", a.dtype, a.lanes, a.depth)

    def compare(self, name: str, a: IRValue, b: IRValue) -> IRValue:
        """Emit a comparison; ``name`` is LLVM's predicate: ``slt``, ``ult``, ``olt``,
        ``uno``, ...
        """
        a, b = self.match_lanes(a, b)
        folded = fold_compare(name, a, b)
        if folded is not None:
            return self.const_lanes(folded, pred, a.lanes)
        word = "icmp" if element_type(a.dtype).startswith("i") else "fcmp"
        depth = max(a.depth, b.depth)
        return self.pure(f"{word} {name} {a}, {b.text}", pred, a.lanes, depth)

    def select(self, c: IRValue, a: IRValue, b: IRValue) -> IRValue:
        """Return ``a`` where ``c``, else ``b``."""
        if isinstance(c.literal, bool):
            a, b = self.match_lanes(a, b)
            return a if c.literal else b
        if a == b:
            return a
        lanes = max(a.lanes, b.lanes, c.lanes)
        a, b = self.broadcast(a, lanes), self.broadcast(b, lanes)
        c = self.broadcast(c, lanes)
        folded = fold_select(c, a, b)
        if folded is not None:
            return self.const_lanes(folded, a.dtype, lanes)
        depth = max(a.depth, b.depth, c.depth)
        return self.pure(f"select {c}, {a}, {b}", a.dtype, lanes, depth)

    def cast(self, name: str, a: IRValue, dtype: DType) -> IRValue:
        """Emit a cast; ``name`` is LLVM's: ``zext``, ``fptrunc``, ``bitcast``, ..."""
        type_ = register_type(dtype, a.lanes)
        folded = fold_cast(name, a, dtype)
        if folded is not None:
            return self.const_lanes(folded, dtype, a.lanes)
        if name == "bitcast" and type_ == a.type:
            return IRValue(a.text, dtype, a.lanes, a.depth, None)
        return self.pure(f"{name} {a} to {type_}", dtype, a.lanes, a.depth)

    def negate_pred(self, c: IRValue) -> IRValue:
        """Return ``not c`` for a predicate."""
        if isinstance(c.literal, bool):
            return self.const(not c.literal, pred, c.lanes)
        return self.binary("xor", c, self.const(True, pred, c.lanes))

    def fma(self, a: IRValue, b: IRValue, c: IRValue) -> IRValue:
        """Return ``a * b + c``, with a single rounding where the machine has an fma."""
        if not self.has_fma:
            return self.binary("fadd", self.binary("fmul", a, b), c)
        return self.intrinsic("llvm.fma", *self.match_lanes(a, b, c))

    def ratio(self, x: IRValue, y: IRValue, maybe_inf: bool = False) -> IRValue:
        """Return ``x / y`` for values of moderate size, ``y`` not 0, or infinite if ``maybe_inf``.

        A GPU, which has no division instruction, refines an estimate of ``1 / y``: the result is
        within 1 ulp.
        """
        if not self.estimates:
            return self.binary("fdiv", x, y)
        x, y = self.match_lanes(x, y)
        if maybe_inf:
            most = self.like(1e300 if y.dtype == f64 else 1e37, y)
            y = self.select(self.compare("ogt", y, most), most, y)
        one, minus = self.like(1.0, y), self.unary("fneg", y)
        r = self.estimate("reciprocal", y)
        for _ in range(2 if y.dtype == f64 else 0):
            r = self.fma(r, self.fma(minus, r, one), r)
        q = self.binary("fmul", x, r)
        return self.fma(self.fma(minus, q, x), r, q)

    def estimate(self, name: str, x: IRValue) -> IRValue:
        """Emit a GPU's approximate instruction for a function of ``ESTIMATES``, or its model."""
        row = ESTIMATES[name, x.dtype]
        symbol = row.intrinsic if self.nvidia else row.model
        if self.nvidia:
            type_ = register_type(x.dtype, 0)
            self.declare(symbol, type_, [type_])
        elif "nw_estimates" not in self.declarations:
            self.declarations["nw_estimates"] = models_text()
            for called, (result, params) in CALLED.items():
                self.declare(called, result, params)
        return self._each(symbol, x)

    def saturated(self, x: IRValue) -> IRValue:
        """Return an f32 clamped to 0 .. 1, and 0 for NaN: part of a GPU's sums and products."""
        if self.nvidia:
            self.declare(_SATURATED, "float", ["float"])
            return self._each(_SATURATED, x)
        zero, one = self.like(0.0, x), self.like(1.0, x)
        low = self.select(self.compare("ogt", x, zero), x, zero)
        return self.select(self.compare("olt", low, one), low, one)

    def _each(self, symbol: str, x: IRValue) -> IRValue:
        """Call a function of one number, which returns one of its type, once per lane."""
        type_ = register_type(x.dtype, 0)
        return by_lane(
            self, (x,), lambda v: self.pure(f"call {type_} @{symbol}({v})", v.dtype, 0, v.depth)
        )

    # Bits.

    def bits(self, x: IRValue) -> IRValue:
        """Return the bits of a float as signed integers."""
        return self.cast("bitcast", x, SIGNED[x.dtype.bits])

    def from_bits(self, x: IRValue) -> IRValue:
        """Return the f32 or f64 with these bits."""
        return self.cast("bitcast", x, {32: f32, 64: f64}[x.dtype.bits])

    # Calls and shuffles.

    def intrinsic(
        self,
        name: str,
        *args: IRValue,
        result: DType | None = None,
        extra: str = "",
        over: str = "",
    ) -> IRValue:
        """Emit a call of an overloaded intrinsic without side effects.

        ``extra`` is an immediate argument such as ``i1 false``; ``over`` replaces the suffix
        derived from the first argument's type.
        """
        first = args[0]
        dtype = result or first.dtype
        full = f"{name}.{over or mangle(first.dtype, first.lanes)}"
        types = [a.type for a in args] + ([extra.split()[0]] if extra else [])
        type_ = register_type(dtype, first.lanes)
        self.declare(full, type_, types)
        operands = ", ".join([*map(str, args), *([extra] if extra else [])])
        depth = max(a.depth for a in args)
        return self.pure(f"call {type_} @{full}({operands})", dtype, first.lanes, depth)

    def declare(self, name: str, result: str, params: list[str]) -> None:
        """Declare an external function in this module."""
        self.declarations[name] = f"declare {result} @{name}({', '.join(params)})"

    def shuffle(self, x: IRValue, lanes: list[int]) -> IRValue:
        """Return the given lanes of ``x`` in order; -1 leaves a lane undefined."""
        mask = ", ".join("i32 poison" if k < 0 else f"i32 {k}" for k in lanes)
        text = f"shufflevector {x}, {x.type} poison, <{len(lanes)} x i32> <{mask}>"
        return self.pure(text, x.dtype, len(lanes), x.depth)

    def lane(self, x: IRValue, index: int) -> IRValue:
        """Return one lane as a scalar; a scalar unchanged."""
        if not x.lanes:
            return x
        if x.literal is not None:
            return self.const(x.literal, x.dtype)
        if x.each is not None:
            return self.const_lanes([x.each[index]], x.dtype, 0)
        return self.pure(f"extractelement {x}, i64 {index}", x.dtype, 0, x.depth)

    def iota(self, dtype: DType, lanes: int, step: int = 1) -> IRValue:
        """Return the vector 0, step, 2 step, ..."""
        return self.const_lanes([wrap(k * step, dtype) for k in range(lanes)], dtype, lanes)

    def any_lane(self, mask: IRValue) -> IRValue:
        """Return a predicate that is true if any lane of a mask is."""
        numbers = lane_literals(mask)
        if numbers is not None:
            return self.const(any(numbers), pred)
        name = f"llvm.vector.reduce.or.v{mask.lanes}i1"
        self.declare(name, "i1", [mask.type])
        return self.pure(f"call i1 @{name}({mask})", pred, 0, mask.depth)

    def first_lanes(self, active: int, lanes: int) -> IRValue:
        """Return a mask with the first ``active`` lanes on."""
        return self.const_lanes([int(k < active) for k in range(lanes)], pred, lanes)


def by_lane(b: IRBuilder, args: tuple[IRValue, ...], one: Callable[..., IRValue]) -> IRValue:
    """Apply ``one`` to the scalars of each lane and reassemble the vector."""
    lanes = max(a.lanes for a in args)
    if not lanes:
        return one(*args)
    result: IRValue | None = None
    for k in range(lanes):
        x = one(*(b.lane(a, k) for a in args))
        so_far = f"{register_type(x.dtype, lanes)} poison" if result is None else str(result)
        depth = x.depth if result is None else max(x.depth, result.depth)
        result = b.pure(f"insertelement {so_far}, {x}, i64 {k}", x.dtype, lanes, depth)
    assert result is not None
    return result
