"""LLVM functions as text: values, nested regions, and the placement of instructions.

A function is a tree of regions: its body, loop bodies, and the arms of conditionals. An instruction
without side effects is emitted once, into the outermost region where its operands are defined:
loop-invariant code is hoisted, and equal instructions share one value. A child region's lines are
appended to its parent when the child is closed, so until then the end of the parent is just before
the child.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from ....ir.dtypes import DType, bf16, f32, f64, pred, s64
from ....ir.errors import UnsupportedError
from ....ir.formats import code, is_narrow
from ....ir.loop.nodes import Buffer, Scalar, quick
from ....ir.target import Target
from ...plan.symbols import POLL
from .tile_shapes import TileRegisters


@quick
@dataclass(frozen=True, slots=True)
class IRValue:
    """An operand: ``lanes`` of ``dtype`` (0: a scalar). ``depth`` is the region that defines it.

    ``literal`` is the number, if it is a known one (the same in every lane); ``each`` has the
    numbers of the lanes, if they are known integers that differ.
    """

    text: str
    dtype: DType
    lanes: int = 0
    depth: int = 0
    literal: Scalar | None = None
    each: tuple[int, ...] | None = None

    @property
    def type(self) -> str:
        """The LLVM type."""
        return register_type(self.dtype, self.lanes)

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


@dataclass(slots=True)
class CodeRegion:
    """Straight-line code and closed children. ``label`` is the basic block at its end.

    ``stored`` are the buffers that the whole region writes. ``sure`` is true if it runs whenever
    its parent does. ``read`` are the buffers that a loop loads vectors from, ``visits`` the
    number of loops closed in here that did.
    """

    label: str
    stored: frozenset[Buffer] = frozenset()
    sure: bool = True
    name: str = ""
    lines: list[str] = field(default_factory=list)
    known: dict[str, IRValue] = field(default_factory=dict)
    loads: dict[Buffer, list[str]] = field(default_factory=dict)
    read: set[Buffer] = field(default_factory=set)
    visits: Counter[Buffer] = field(default_factory=Counter)


CALLER = "%caller"
"""The mode of a caller, in functions that flush denormals (``emit.statements.flushing``)."""
_SCALARS = {"pred": "i1", "f16": "half", "bf16": "i16", "f32": "float", "f64": "double"}


@cache
def element_type(dtype: DType) -> str:
    """Return the LLVM type of one element in a register. ``bf16`` and narrow types are
    their bits.
    """
    if is_narrow(dtype):
        return "i8"
    if dtype.name in _SCALARS:
        return _SCALARS[dtype.name]
    if dtype.is_int:
        return f"i{dtype.bits}"
    raise UnsupportedError(
        f"elements of type {dtype}",
        "the code generator has no registers for them",
        hint="convert to f32 first",
    )


def memory_type(dtype: DType) -> str:
    """Return the LLVM type of one element in memory."""
    return "i8" if dtype == pred else element_type(dtype)


@cache
def register_type(dtype: DType, lanes: int) -> str:
    """Return the LLVM type of a scalar (``lanes`` 0) or a vector."""
    return f"<{lanes} x {element_type(dtype)}>" if lanes else element_type(dtype)


def mangle(dtype: DType, lanes: int) -> str:
    """Return a type as it is spelled in the name of an intrinsic: ``v16f32``, ``i64``."""
    if is_narrow(dtype):
        name = "i8"
    else:
        bits = 1 if dtype == pred else dtype.bits
        name = f"f{bits}" if dtype.is_float and dtype != bf16 else f"i{bits}"
    return f"v{lanes}{name}" if lanes else name


def literal_text(value: Scalar, dtype: DType) -> str:
    """Return a constant in LLVM's syntax: floats by their bits."""
    if dtype == pred:
        return "true" if value else "false"
    if isinstance(value, complex):
        raise UnsupportedError("a complex constant", "the code generator has no complex type")
    if is_narrow(dtype):
        return str(code(value, dtype))
    if not dtype.is_float:
        bits = int(value) & ((1 << dtype.bits) - 1)
        return str(bits - (1 << dtype.bits) if bits >> (dtype.bits - 1) else bits)
    if dtype == bf16:
        return str(bf16_bits(float(value)))
    number = float(value)
    if dtype == f64:
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if dtype == f32:
        rounded = round_f32(number)
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    try:
        half = struct.pack("<e", number)
    except OverflowError:
        half = struct.pack("<e", math.copysign(math.inf, number))
    return f"0xH{struct.unpack('<H', half)[0]:04X}"


def round_f32(number: float) -> float:
    """Round to the nearest f32."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def bf16_bits(number: float) -> int:
    """Return the bits of the nearest bf16, as a signed 16-bit number."""
    if math.isnan(number):
        return 0x7FC0 if math.copysign(1.0, number) > 0 else 0xFFC0 - 0x10000
    bits = int(struct.unpack("<I", struct.pack("<f", round_f32(number)))[0])
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return bits - 0x10000 if bits & 0x8000 else bits


def _flushing(target: Target) -> str:
    """Return the attribute, after a space, by which LLVM knows that denormals count as 0."""
    kind = "denormal-fp-math" if target.flushes_f64 else "denormal-fp-math-f32"
    return f' "{kind}"="preserve-sign,preserve-sign"' if target.flushes else ""


class Function:
    """One LLVM function under construction. Regions are a stack; the last one is open.

    ``poll`` is the function that returns true when this one has to return early, at the label
    ``leave``. ``tiles`` are its tile registers, if it uses them.
    """

    poll = POLL
    leave = "leave"

    def __init__(self, name: str, params: str, target: Target) -> None:
        self.name = name
        self.params = params
        self.target = target
        self.allocas: list[str] = []
        self.returns = "void"
        self.prologue: list[str] = []
        self.epilogue: list[str] = ["  ret void"]
        self.regions = [CodeRegion("entry")]
        self.count = 0
        self.has_polls = False
        self.tiles: TileRegisters | None = None

    @property
    def polled(self) -> str:
        """A poll, in the mode of the caller."""
        own = f"call i1 @{self.poll}()"
        return f"call i1 @nw_caller_poll(i64 {CALLER})" if self.target.flushes else own

    @property
    def depth(self) -> int:
        """The index of the open region."""
        return len(self.regions) - 1

    @property
    def here(self) -> CodeRegion:
        """The open region."""
        return self.regions[-1]

    def name_for(self, stem: str) -> str:
        """Return a fresh name."""
        self.count += 1
        return f"{stem}{self.count}"

    def arm(self) -> int:
        """Return the depth of the innermost region that may be skipped although its parent runs."""
        return next((d for d in range(self.depth, 0, -1) if not self.regions[d].sure), 0)

    def pure(self, text: str, dtype: DType, lanes: int, depth: int) -> IRValue:
        """Emit an instruction without side effects into region ``depth`` or a descendant.

        Integer scalars are hoisted as far as possible. Others stay in their conditional arm, since
        they cost something.
        """
        if lanes or dtype.is_float:
            depth = max(depth, self.arm())
        return self._write(text, dtype, lanes, depth)

    def _write(self, text: str, dtype: DType, lanes: int, depth: int) -> IRValue:
        region = self.regions[depth]
        found = region.known.get(text)
        if found is None:
            name = f"%{self.name_for('v')}"
            region.lines.append(f"  {name} = {text}")
            found = region.known[text] = IRValue(name, dtype, lanes, depth)
        return found

    def read(
        self,
        text: str,
        dtype: DType,
        lanes: int,
        buffer: Buffer,
        depth: int,
        before: Callable[[int], None] = lambda depth: None,
    ) -> IRValue:
        """Emit a load from ``buffer``, hoisted out of loops that do not write it and surely run.

        ``before`` is called with the region that the load goes into, if it was not there yet.
        """
        while depth < self.depth and any(
            not r.sure or buffer in r.stored for r in self.regions[depth + 1 :]
        ):
            depth += 1
        region = self.regions[depth]
        fresh = text not in region.known
        if fresh:
            before(depth)
        value = self._write(text, dtype, lanes, depth)
        if fresh:
            region.loads.setdefault(buffer, []).append(text)
        return value

    def forget(self, buffer: Buffer) -> None:
        """Invalidate the values loaded from ``buffer``, which has changed."""
        for region in self.regions:
            for text in region.loads.pop(buffer, ()):
                region.known.pop(text, None)

    def write(self, line: str, depth: int = -1) -> None:
        """Emit an instruction with side effects, here or at the present end of region ``depth``."""
        self.regions[depth].lines.append(f"  {line}")

    def label(self, name: str) -> None:
        """Begin a basic block here; the preceding lines terminate the last one."""
        self.here.lines.append(f"{name}:")
        self.here.label = name

    def once(self, line: str) -> None:
        """Emit an instruction with side effects that need not be repeated in this region."""
        if line not in self.here.known:
            self.here.known[line] = IRValue("", s64)
            self.write(line)

    def result(self, text: str, dtype: DType, lanes: int = 0) -> IRValue:
        """Emit an instruction with side effects and a result, here."""
        name = f"%{self.name_for('v')}"
        self.here.lines.append(f"  {name} = {text}")
        return IRValue(name, dtype, lanes, self.depth)

    def alloca(self, type_: str, align: int) -> IRValue:
        """Return a slot of the stack frame."""
        name = f"%{self.name_for('slot')}"
        self.allocas.append(f"  {name} = alloca {type_}, align {align}")
        return IRValue(name, s64)

    def open_loop(self, stored: Iterable[Buffer], sure: bool) -> tuple[IRValue, str]:
        """Begin a loop's body; return its counter and the loop's name."""
        name = self.name_for("loop")
        changed = frozenset(stored)
        for buffer in changed:
            self.forget(buffer)
        self.regions.append(CodeRegion(name, changed, sure, name))
        return IRValue(f"%i.{name}", s64, 0, self.depth), name

    def close_loop(
        self, name: str, begin: str, end: str, step: int, bits: int = 64, every: int = 0
    ) -> None:
        """End a loop's body: the counter runs from ``begin`` by ``step`` while it is below ``end``.

        It counts in ``bits``, the width of ``begin`` and ``end``. If ``every`` is not 0, the loop
        is strip-mined, and the outer loop polls after that many iterations whether to return.
        """
        body = self.regions.pop()
        parent = self.here
        parent.visits.update(body.read)
        for buffer in body.stored:
            self.forget(buffer)
        i, type_, widened = "i", f"i{bits}", []
        if bits < 64:
            i = "j"
            widened = [f"  %i.{name} = zext nneg {type_} %j.{name} to i64"]
        before, until, after = parent.label, end, f"x.{name}"
        if every:
            parent.lines += self._open_strip(name, begin, end, type_, before, step * every)
            before, begin, until, after = f"o.{name}", f"%s.{name}", f"%u.{name}", f"d.{name}"
        start = f"[ {begin}, %{before} ], [ %n.{name}, %{body.label} ]"
        parent.lines += [
            f"  br label %{name}",
            f"{name}:",
            f"  %{i}.{name} = phi {type_} {start}",
            *widened,
            *body.lines,
            f"  %n.{name} = add nsw {type_} %{i}.{name}, {step}",
            f"  %c.{name} = icmp slt {type_} %n.{name}, {until}",
            f"  br i1 %c.{name}, label %{name}, label %{after}",
        ]
        if every:
            parent.lines += self._close_strip(name, end, type_)
        parent.lines.append(f"x.{name}:")
        parent.label = f"x.{name}"

    def _open_strip(
        self, name: str, begin: str, end: str, type_: str, before: str, length: int
    ) -> list[str]:
        """Return the head of the outer loop of a polling loop, with the bounds of the inner one."""
        kind = f"{type_} {length}"
        return [
            f"  br label %o.{name}",
            f"o.{name}:",
            f"  %s.{name} = phi {type_} [ {begin}, %{before} ], [ %n.{name}, %a.{name} ]",
            f"  %r.{name} = sub {type_} {end}, %s.{name}",
            f"  %t.{name} = icmp ult {type_} %r.{name}, {length}",
            f"  %l.{name} = select i1 %t.{name}, {type_} %r.{name}, {kind}",
            f"  %u.{name} = add {type_} %s.{name}, %l.{name}",
        ]

    def _close_strip(self, name: str, end: str, type_: str) -> list[str]:
        """Return the end of the outer loop of a polling loop: poll if iterations remain."""
        self.has_polls = True
        return [
            f"d.{name}:",
            f"  %m.{name} = icmp slt {type_} %n.{name}, {end}",
            f"  br i1 %m.{name}, label %a.{name}, label %x.{name}",
            f"a.{name}:",
            f"  %q.{name} = {self.polled}",
            f"  br i1 %q.{name}, label %{self.leave}, label %o.{name}",
        ]

    def poll_here(self) -> None:
        """Poll here whether to return from the function."""
        self.has_polls = True
        name = self.name_for("go")
        self.write(f"%q.{name} = {self.polled}")
        self.write(f"br i1 %q.{name}, label %{self.leave}, label %{name}")
        self.label(name)

    def open_arm(self) -> None:
        """Begin an arm of a conditional."""
        name = self.name_for("arm")
        self.regions.append(CodeRegion(name, frozenset(), False, name=name))

    def close_arm(self) -> CodeRegion:
        """End an arm and return it, for ``branch``."""
        return self.regions.pop()

    def branch(self, condition: IRValue, then: CodeRegion, otherwise: CodeRegion | None) -> None:
        """Emit ``if condition: then else: otherwise`` with two closed arms."""
        parent, join = self.here, self.name_for("join")
        other = join if otherwise is None else otherwise.name
        parent.lines.append(f"  br i1 {condition.text}, label %{then.name}, label %{other}")
        for arm in (then, otherwise):
            if arm is not None:
                parent.lines += [f"{arm.name}:", *arm.lines, f"  br label %{join}"]
        parent.lines.append(f"{join}:")
        parent.label = join

    def text(self, attributes: str, linkage: str = "") -> str:
        """Return the function's definition; a non-empty ``linkage`` ends in a space."""
        mode = _flushing(self.target)
        head = f"define {linkage}{self.returns} @{self.name}({self.params}) {attributes}{mode} {{"
        body = [*self.allocas, *self.prologue, *self.regions[0].lines, *self.epilogue]
        if self.has_polls and self.leave == Function.leave:
            used = self.tiles is not None and self.tiles.shapes
            release = ["  call void @llvm.x86.tilerelease()"] if used else []
            body += [f"{self.leave}:", *release, "  ret void"]
        return "\n".join([head, "entry:", *body, "}", ""])
