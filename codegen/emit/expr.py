"""Emit loop-IR expressions as LLVM values, uniform or one per lane of the enclosing vector loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import gcd

from ...ir.dtypes import DType, f32, index, pred, s32
from ...ir.formats import FORMATS
from ...ir.loop.affine import Interval, bounds
from ...ir.loop.build import opposite
from ...ir.loop.nodes import Buffer, Cast, Const, Expr, For, Load, Op, Scope, Stmt, Store, Var
from ...ir.loop.visit import children, loads_in, own_writes
from ...ir.target import Target
from .access import SMALL, gains, load_element
from .align import divisor
from .codes import emit_codes, emit_decoded
from .fetch import LINE, FetchedLines
from .index import Indices, NarrowIndex, fits_s32
from .launches import DeviceEmitter, synchronizes
from .llvm.convert import convert, reinterpret
from .llvm.core import Function, IRValue, register_type
from .llvm.f8_pairs import PAIRS, last_number, narrow_pairs
from .ops import apply

_BEYOND = frozenset({"mulhi", "shift-right-logical", "count-leading-zeros", "popcnt"})
"""What 32 bits give another result for, even if it is small."""
_BOTH = {"minimum", "maximum"}
VECTOR_BYTES = 16  # of a GPU's widest access; every buffer begins at a multiple


class Emitter(Indices):
    """An IR builder with the environment of the loop program.

    ``ranges`` are the bounds of the values of ``env``, ``divisors`` their known divisors.
    ``parallel`` is true in the body of a parallel loop, ``threaded`` inside a GPU's thread loops.
    ``exchanged`` are the buffers that other threads may change at a barrier, ``shared`` the bytes
    of shared memory in use here. ``polls`` are the loops that poll for interrupts (see
    ``interrupt_polls``), ``streams`` what loops prefetch (see ``fetch``).
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.ranges: dict[Var, Interval] = {}
        self.divisors: dict[Var, int] = {}
        self.parallel = False
        self.workspace = 0
        self.finished: list[str] = []
        self.slots: dict[int, IRValue] = {}
        self.streams: dict[int, list[FetchedLines]] = {}
        # By the identity of the statement, which is kept so that it is not given to another.
        self.plans: dict[int, tuple[For, int, list[Store]]] = {}
        self.reductions: dict[int, tuple[Store, tuple[str, Expr] | None]] = {}
        self.stored: dict[int, tuple[Stmt, frozenset[Buffer]]] = {}
        self.exchanged: frozenset[Buffer] = frozenset()
        self.threaded = False
        self.shared = 0
        self.polls: Mapping[int, int] = {}

    @contextmanager
    def outlined(self, function: Function) -> Iterator[None]:
        """Emit the body of a parallel loop into a function of its own, in a ``with`` block.

        It knows the constants in ``env`` and nothing else that is in scope around it.
        """
        outside = self.function, self.env, self.buffers, self.parallel
        self.function, self.parallel = function, True
        self.env = {k: v for k, v in self.env.items() if v.literal is not None}
        self.buffers = {}
        try:
            yield
        finally:
            self.function, self.env, self.buffers, self.parallel = outside

    def value(self, e: Expr) -> IRValue:
        """Emit an expression."""
        match e:
            case Const(value=v, dtype=dtype):
                return self.const(v, dtype)
            case Var():
                return self.variable(e)
            case Op(name="add" | "subtract" | "multiply" | "negate", dtype=d) if d == index:
                return self.linear(e)
            case Op(name="floordiv" | "floormod" as name, args=(a, b), dtype=d) if d == index:
                return self.quotient(e, name, a, b)
            case Op(name="select", args=(c, a, b)):
                return self.selection(e, c, a, b)
            case Op(name="subtract", args=(Cast(), Const())) if found := emit_decoded(self, e):
                return found
            case Op(name=name, args=args):
                return self.operation(e, name, tuple(self.value(a) for a in args))
            case Cast() if found := emit_codes(self, e) or emit_decoded(self, e):
                return found
            case Cast(value=inner, dtype=dtype, bits=bits):
                x = self.value(inner)
                return reinterpret(self, x, dtype) if bits else self.converted(e, x, dtype)
            case Load(buffer=buffer, index=(at,)):
                return load_element(self, buffer, at)
        raise AssertionError(f"not a flat expression: {e}")

    def variable(self, var: Var) -> IRValue:
        """Return a variable; the vector loop's own as one number per lane."""
        lanes = self.lanes
        if lanes is not None and var is lanes.var:
            return self.stepped(lanes.base, lanes.count, 1)
        return self.env[var]

    def stepped(self, first: IRValue, count: int, step: int) -> IRValue:
        """Return an index and its successors at a distance, one per lane."""
        known = self.narrow(first) if self.device is not None else None
        if known is not None:
            ends = known.low + min(0, step * (count - 1)), known.high + max(0, step * (count - 1))
            if fits_s32(*ends):
                steps = self.iota(s32, count, step)
                return self.widened(self.binary("add", steps, known.value), *ends)
        return self.binary("add", self.iota(index, count, step), self.broadcast(first, count))

    def alignment(self, buffer: Buffer, at: Expr) -> int:
        """Return one element's size on a CPU, where more has no effect but for streaming stores; up
        to 16 on a GPU.
        """
        if self.device is None and buffer not in self.bypassing:
            return buffer.dtype.bytes
        most = LINE if self.device is None else VECTOR_BYTES
        return gcd(most, divisor(at, self.divisor) * buffer.dtype.bytes)

    def divisor(self, var: Var) -> int:
        """Return a number that divides a variable; in a vector loop, its value in lane 0."""
        lanes = self.lanes
        vector = lanes is not None and var is lanes.var
        value = lanes.base if lanes is not None and vector else self.env[var]
        if isinstance(value.literal, int):
            return abs(value.literal)
        return lanes.count if lanes is not None and vector else self.divisors.get(var, 1)

    def thread(self, device: DeviceEmitter, name: str, var: Var) -> IRValue:
        """Return this thread's or block's index in dimension ``name``, as the variable ``var``."""
        return self.widened(device.thread_index(name), *self.ranges[var])

    def operation(self, e: Op, name: str, args: tuple[IRValue, ...]) -> IRValue:
        """Emit an operation; on a GPU one on indices in 32 bits where that is enough."""
        if self.device is None or args[-1].dtype != index or name in _BEYOND:
            return apply(self, name, args)
        low, high = bounds(e, self.ranges) if e.dtype == index else (0, 0)
        known = [self.narrow(a) if a.dtype == index else None for a in args]
        small = all(k or a.dtype == pred for k, a in zip(known, args, strict=True))
        if not small or not fits_s32(low, high):
            result = apply(self, name, args)
            if e.dtype == index and fits_s32(low, high) and result.literal is None:
                self.small[result.text] = NarrowIndex(self.cast("trunc", result, s32), low, high)
            return result
        narrowed = tuple(k.value if k else a for k, a in zip(known, args, strict=True))
        result = apply(self, name, narrowed)
        return self.widened(result, low, high) if e.dtype == index else result

    def converted(self, e: Cast, x: IRValue, dtype: DType) -> IRValue:
        """Emit a conversion; on a GPU one to or from an index by way of 32 bits where that is
        enough.
        """
        known = self.narrow(x) if x.dtype == index else None
        if known is not None and dtype != index:
            x = known.value
        if self.device is not None and dtype == index and x.dtype == s32 and not x.lanes:
            low, high = bounds(e, self.ranges)
            return self.widened(x, max(low, -(1 << 31)), min(high, SMALL))
        if self.f8_pairs and x.dtype == f32 and dtype in PAIRS:
            return narrow_pairs(self, x, dtype, _is_within(e.value, last_number(FORMATS[dtype])))
        return convert(self, x, dtype)

    def selection(self, e: Op, c: Expr, a: Expr, b: Expr) -> IRValue:
        """Emit a select: both arms are computed and no branch is taken.

        An arm that reads memory is only evaluated where it is taken on a GPU, and on a CPU if the
        condition may be what keeps it from reading beyond a buffer.
        """
        cond = self.value(c)
        if isinstance(cond.literal, bool):
            return self.value(a if cond.literal else b)
        if self.device is None:
            apart = _limits_indices(c) and (self.reads_beyond(a) or self.reads_beyond(b))
        else:
            apart = _fetches(a) or _fetches(b)
        if cond.lanes:
            other = opposite(c)
            masked = [apart or gains(self, *arm) for arm in ((c, a), (other, b))]
            x = self.where(cond, a, c) if masked[0] else self.value(a)
            y = self.where(self.negate_pred(cond), b, other) if masked[1] else self.value(b)
            return self.operation(e, "select", (cond, x, y))
        if not apart:
            return self.operation(e, "select", (cond, self.value(a), self.value(b)))
        return self.branched_select(cond, a, b)

    def reads_beyond(self, e: Expr) -> bool:
        """True if an expression may read elements that a buffer does not have."""
        for load in loads_in(e):
            if load.buffer.scope is not Scope.REGISTER:
                low, high = bounds(load.index[0], self.ranges)
                if low < 0 or high >= load.buffer.shape[0]:
                    return True
        return False

    def where(self, mask: IRValue, e: Expr, known: Expr) -> IRValue:
        """Emit an expression under a mask, in whose lanes ``known`` holds."""
        lanes = self.lanes
        assert lanes is not None
        self.lanes = self.masked(mask, known)
        x = self.const(0, e.dtype, lanes.count) if self.lanes is None else self.value(e)
        self.lanes = lanes
        return x

    def branched_select(self, cond: IRValue, a: Expr, b: Expr) -> IRValue:
        """Emit one of two expressions, chosen by a branch."""
        count = 0 if self.lanes is None else self.lanes.count
        type_, size = register_type(a.dtype, count), a.dtype.bytes * max(count, 1)
        slot, arms = self.function.alloca(type_, size & -size), []
        for e in (a, b):
            self.function.open_arm()
            x = self.value(e)
            x = self.broadcast(x, count) if count and not x.lanes else x
            self.function.write(f"store {x}, ptr {slot.text}, align {size & -size}")
            arms.append(self.function.close_arm())
        self.function.branch(cond, *arms)
        text = f"load {type_}, ptr {slot.text}, align {size & -size}"
        return self.function.result(text, a.dtype, count)

    def linear(self, e: Op) -> IRValue:
        """Emit a sum or product of indices."""
        form = self.form(e)
        if form is None:
            return apply(self, e.name, tuple(self.value(a) for a in e.args))
        total = self.total(form)
        if not form.lane or self.lanes is None:
            return total
        return self.stepped(total, self.lanes.count, form.lane)

    def narrow_quotient(self, e: Op, name: str, x: IRValue, y: IRValue) -> IRValue:
        """Emit a quotient or remainder on a GPU, unsigned where that is known to be the same."""
        a, b = self.narrow(x), self.narrow(y)
        low, high = bounds(e, self.ranges)
        if a is None or b is None or not fits_s32(low, high):
            return apply(self, name, (x, y))
        if a.low < 0 or b.low < 1:
            return self.widened(apply(self, name, (a.value, b.value)), low, high)
        instruction = "udiv" if name == "floordiv" else "urem"
        return self.widened(self.binary(instruction, a.value, b.value), low, high)

    def quotient(self, e: Op, name: str, a: Expr, b: Expr) -> IRValue:
        """Emit a quotient or remainder, unsigned where the dividend is known to be non-negative."""
        x, y = self.value(a), self.value(b)
        if self.device is not None:
            return self.narrow_quotient(e, name, x, y)
        if bounds(a, self.ranges)[0] < 0:
            return apply(self, name, (x, y))
        x, y = self.match_lanes(x, y)
        if not isinstance(y.literal, int) or y.literal & (y.literal - 1) == 0:
            return apply(self, name, (x, y))
        narrow = x.lanes and max(bounds(a, self.ranges)[1], bounds(b, self.ranges)[1]) <= SMALL
        if narrow:  # vectors of 64-bit quotients are scalarized
            x, y = (convert(self, v, s32) for v in (x, y))
        result = self.binary("udiv" if name == "floordiv" else "urem", x, y)
        return convert(self, result, index)

    def stores(self, s: Stmt) -> frozenset[Buffer]:
        """Return the buffers whose contents a statement may change here, other threads' writes
        included.
        """
        known = self.stored.get(id(s))
        if known is None:
            exchanged = self.exchanged if synchronizes(s) else ()
            below = (self.stores(c) for c in children(s))
            known = s, frozenset(own_writes(s)).union(exchanged, *below)
            self.stored[id(s)] = known
        return known[1]


def _fetches(e: Expr) -> bool:
    """True if evaluating an expression reads memory."""
    return any(x.buffer.scope is not Scope.REGISTER for x in loads_in(e))


def _limits_indices(cond: Expr) -> bool:
    """True if a condition may hold at some indices only, whatever the data are."""
    match cond:
        case Op(args=(a, *_)) if a.dtype == index:
            return True
        case Op(args=args) if cond.dtype == pred:
            return any(a.dtype == pred and _limits_indices(a) for a in args)
        case Var():
            return True
        case _:
            return False


def _is_within(e: Expr, most: float) -> bool:
    """True if an expression is clamped to numbers of at most this magnitude, NaN apart."""
    match e:
        case Op(name="clamp", args=(Const() as low, _, Const() as high)):
            ends: list[Expr] = [low, high]
        case Op(name="minimum" | "maximum" as one, args=args):
            inner = [a for a in args if isinstance(a, Op) and {a.name, one} == _BOTH]
            ends = [*args, *(a for other in inner for a in other.args)]
        case _:
            return False
    sizes = [abs(a.value) for a in ends if isinstance(a, Const)]
    return len(sizes) == 2 and max(sizes) <= most
