"""Loop IR: what a loop nest is made of.

A function works on buffers. Its body is a tree of loops, blocks and stores. Before scheduling and
through it, every store is in a *block*: a unit of work over named axes, with its reads and
writes declared, so that a rewrite of the loops around it need not look inside. Lowering opens the
blocks and flattens the buffers; what is left is plain loops.

Semantics, once and for all:

* Nodes are frozen values. A rewrite builds new nodes and shares the rest. They compare by
  structure, except ``Var`` and ``Buffer``, which compare by identity: two loops may both be called
  ``i``. ``visit.equal`` compares up to renaming of both.
* A loop runs its variable over 0 .. extent-1. An extent is an expression over outer variables and
  symbols (a ``Var`` that no loop introduces and that the function lists in ``symbols``).
* A block's axis has a value bound by the loops around it (``BlockAxis.value``). A *spatial* axis
  indexes the elements that the block writes: each of its points is written by one instance (up to
  reductions). The instances of a *reduce* axis all update the same elements. ``init`` runs instead
  of nothing, before the first update of an element: at the instance where every reduce axis is 0.
* ``Block.predicate`` guards an instance: where it is false, neither init nor body runs. Splits with
  a tail put their guard there.
* ``reads`` and ``writes`` cover every element that an instance (body and init) may touch, given
  over the block's axes. An update that reads what it writes lists the region under both.
* Loop kinds never change results, only order: see ``Kind``.
* Statements after a loop over blocks, in a loop over others, are a *join*: the last of the inner
  loop's blocks to finish does them, and sees what all of them wrote to global memory.
* A thread-bound loop inside another of the same index shares its iterations among the same threads.
  What it does may not depend on the outer variable: run one after the other, every outer iteration
  does it all again, and to no effect.
* A buffer in ``Scope.WARP`` is touched by intrinsics only, outside of loops over ``threadIdx.x``:
  the 32 threads of that index do one intrinsic together; of ``Scope.WARPGROUP`` its 128 threads.
  Until one takes its place, a block that is yet to be tensorized may touch it element by element.
* A buffer in ``Scope.TENSOR`` is a block's, and touched by intrinsics only, too.
* Index arithmetic is in s64 and does not overflow. Floats may be contracted (a*b+c to fma) and
  reductions reassociated; nothing else is reordered: no NaN or infinity is assumed away.
* ``Let`` names a value; values have no side effects.
* Reading an element that nothing wrote is undefined; an index out of bounds is undefined. Of a
  selection only the operand that is chosen is read.

The text of a function (``printer``, ``parser``) is Python syntax with this grammar. Quoted are
terminals, ``[x]`` is optional, ``x*`` any number, ``x, ..`` any number with commas between; after
a colon comes an indented suite. In ``<>`` is the node that a rule makes:

  func       : "@func" "(" "outputs" "=" INT ["," notes] ")" "def" NAME "(" param, .. ")" ":"
               (NAME "=" alloc)* suite                                              <Func>
  param      : NAME ":" type | NAME ":" DTYPE                                       <Buffer> <Var>
  type       : DTYPE "[" INT, .. "]"
  alloc      : "alloc" "(" type ["," "scope" "=" SCOPE] ["," "align" "=" INTS]
               ["," "swizzle" "=" INT] ")"                                          <Scope>
  suite      : "pass" | stmt* [NAME "=" (alloc | let) suite]                        <Seq>
  stmt       : element "=" expr                                                     <Store>
             | "for" NAME "in" kind "(" [THREAD ","] expr ["," notes] ")" ":" suite <For>
             | "if" expr ":" suite ["else" ":" suite]                               <If>
             | "with" alloc "as" NAME ":" suite                                     <Alloc>
             | "with" let "as" NAME ":" suite                                       <Let>
             | "with" "block" "(" STR ["," notes] ")" ":" [axes] head suite         <Block>
             | "intrinsic" "(" STR ["," "writes" "(" region, .. ")"]
               ["," "reads" "(" region, .. ")"] ["," "args" "(" INT, .. ")"] ")"    <Intrinsic>
             | "all_reduce" "(" INT "," NAME, .. "," "lambda" NAME, .. ":" exprs ")"
                                                                                    <AllReduce>
  kind       : "range" | "parallel" | "vectorize" | "unroll" | "thread"             <Kind>
  let        : "let" "(" DTYPE "," expr ")"
  axes       : NAME, .. "=" axis, ..
  axis       : ("spatial" | "reduce") "(" INT "," expr ")"               <BlockAxis> <AxisKind>
  head       : ["where" "(" expr ")"] "reads" "(" region, .. ")" "writes" "(" region, .. ")"
               ["with" "init" "(" ")" ":" suite]
  region     : NAME "[" range, .. "]"                                               <Region>
  range      : expr | expr ":" expr                                                 <Range>
  element    : NAME "[" expr, .. "]"                                                <Load>
  expr       : NAME | element | literal | OPERATION "(" expr, .. ")"                <Op>
             | expr INFIX expr | "-" expr | "~" expr | "not" expr
             | expr ("and" | "or") expr | "(" expr ")"
             | ("cast" | "bitcast") "(" DTYPE "," expr ")"                          <Cast>
  exprs      : expr | "(" expr, .. ")"
  literal    : INT | "True" | "False" | DTYPE "(" number, .. ")"                    <Const>
  number     : ["-"] (INT | FLOAT | "inf" | "nan")
  notes      : NAME "=" note, .. | "**" "{" STR ":" note, .. "}"
  note       : ["-"] INT | STR | "(" note, .. ")"
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from ..dtypes import DType, index

T = TypeVar("T")
Scalar: TypeAlias = int | float | bool | complex
SHARED_ALIGN = 128  # bytes: every buffer in shared memory begins at a multiple
CHUNK = 16  # bytes that a swizzle moves as one


def quick(node: type[T]) -> type[T]:
    """Give a frozen dataclass with slots an ``__init__`` that writes to them, and return it.

    The one that it replaces looks up ``object.__setattr__`` for each field, which in turn looks up
    the field. Parameters and values are the same; there may be no ``__post_init__``.
    """
    known: dict[str, Any] = {"absent": MISSING}
    parameters, lines = ["self"], []
    for f in fields(node):  # type: ignore[arg-type]  # a dataclass is no type of its own
        name = value = f.name
        known[f"set_{name}"] = getattr(node, name).__set__
        if f.default_factory is not MISSING:
            known[f"new_{name}"] = f.default_factory
            value = f"new_{name}()"
            if f.init:
                parameters.append(f"{name}=absent")
                value = f"{value} if {name} is absent else {name}"
        elif f.default is not MISSING:
            known[f"default_{name}"] = f.default
            parameters.append(f"{name}=default_{name}")
        else:
            parameters.append(name)
        lines.append(f"    set_{name}(self, {value})\n")
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(lines)}", known)
    known["__init__"].__qualname__ = f"{node.__qualname__}.__init__"
    node.__init__ = known["__init__"]  # type: ignore[method-assign]
    return node


@quick
@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A name for a value: a loop index, a block axis, a ``Let``, or a symbol.

    ``number`` is in the order in which variables are made: of the loops of one name the oldest
    prints without a suffix, so that new loops do not rename those that are there.
    """

    name: str
    dtype: DType = index
    number: int = field(default_factory=itertools.count().__next__, init=False)

    def __repr__(self) -> str:
        return self.name


@quick
@dataclass(frozen=True, slots=True)
class Const:
    """A literal. Floats are kept as Python floats, rounded to ``dtype`` where they are used."""

    value: Scalar
    dtype: DType = index


@quick
@dataclass(frozen=True, slots=True)
class Op:
    """An operation of ``ir.elementwise.TABLE`` on scalars, index arithmetic included."""

    name: str
    args: tuple[Expr, ...]
    dtype: DType


@quick
@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion as HLO ``convert``; with ``bits``, reinterpretation as ``bitcast-convert``."""

    value: Expr
    dtype: DType
    bits: bool = False


@quick
@dataclass(frozen=True, slots=True)
class Load:
    """One element of a buffer."""

    buffer: Buffer
    index: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        """The element type of the buffer."""
        return self.buffer.dtype


Expr: TypeAlias = Var | Const | Op | Cast | Load


class Scope(Enum):
    """The memory that a buffer lives in."""

    GLOBAL = "global"  # memory: an argument, the arena, or a thread's own scratch
    REGISTER = "register"  # registers of one thread; every index is constant once unrolled
    SHARED = "shared"  # a GPU block's shared memory
    WARP = "warp"  # matrix tiles, spread over the registers of the 32 threads of a GPU's warp
    WARPGROUP = "warpgroup"  # the same of the 128 threads of four warps
    TENSOR = "tensor"  # a block's tensor memory: sums of products, 128 rows side by side
    COUNTER = "counter"  # of blocks that arrived: 0 before and after each launch, for `arrive` only


OF_BLOCK = (Scope.SHARED, Scope.TENSOR)  # what all threads of a block have in common


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A row-major array. ``shape`` extents are ints, or expressions over symbols.

    ``align`` is (dimension, factor, offset): that dimension's stride is the least one, not below
    the dense one, that is ``offset`` modulo ``factor``, in elements. It keeps threads off each
    other's banks of shared memory, and neighbors in that dimension out of each other's sets of a
    cache. ``swizzle`` n (2, 4 or 8) permutes the chunks of ``CHUNK`` bytes of the last dimension in
    shared memory: chunk c of row r is at c xor ((r // (8 // n)) mod n). Neither changes what an
    index means; flattening applies them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scope: Scope = Scope.GLOBAL
    align: tuple[int, int, int] | None = None
    swizzle: int = 0

    def __repr__(self) -> str:
        return self.name

    @property
    def strides(self) -> tuple[int, ...]:
        """The elements from one index to the next in each dimension."""
        found: list[int] = []
        dense = 1
        for d in reversed(range(len(self.shape))):
            found.append(self.stride(d, dense))
            dense = found[-1] * self.shape[d]
        return tuple(reversed(found))

    def stride(self, d: int, dense: int) -> int:
        """Return the stride of dimension ``d``, behind which ``dense`` elements lie."""
        if self.align is None or self.align[0] != d:
            return dense
        _, factor, offset = self.align
        return dense + (offset - dense) % factor


@quick
@dataclass(frozen=True, slots=True)
class Range:
    """Half open: ``start .. start + extent - 1`` of one dimension."""

    start: Expr
    extent: Expr


@quick
@dataclass(frozen=True, slots=True)
class Region:
    """A box of a buffer."""

    buffer: Buffer
    ranges: tuple[Range, ...]


class Kind(Enum):
    """The order in which the iterations of a loop run, and on what."""

    SERIAL = "range"  # in order
    PARALLEL = "parallel"  # in any order, by several threads
    VECTOR = "vectorize"  # as lanes of vector operations; the extent is a constant
    UNROLLED = "unroll"  # in order, as straight-line code; the extent is a constant
    THREAD = "thread"  # at once, one by each thread or block of the index ``For.thread`` names


THREADS = (
    "blockIdx.z",
    "blockIdx.y",
    "blockIdx.x",
    "threadIdx.z",
    "threadIdx.y",
    "threadIdx.x",
)
"""The values of ``For.thread``, in the order in which a kernel's loops are nested once lowered."""


class AxisKind(Enum):
    """The role of a block's axis."""

    SPATIAL = "spatial"
    REDUCE = "reduce"


NoteValue: TypeAlias = int | str | tuple[int, ...] | tuple[str, ...] | tuple[tuple[int, int], ...]
Notes: TypeAlias = Mapping[str, NoteValue]
NO_NOTES: Notes = MappingProxyType({})


class _Noted:
    """A node with notes, whose read-only view copies and pickles cannot hold."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        held = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return _noted, (type(self), held | {"notes": dict(held["notes"])})


def _noted(kind: Callable[..., object], held: dict[str, Any]) -> object:
    """Return a node that was copied or pickled."""
    notes = held["notes"]
    return kind(**held | {"notes": MappingProxyType(notes) if notes else NO_NOTES})


@quick
@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[index] = value``."""

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr


@quick
@dataclass(frozen=True, slots=True)
class Let:
    """``var = value`` in ``body``."""

    var: Var
    value: Expr
    body: Stmt


@quick
@dataclass(frozen=True, slots=True)
class If:
    """``then`` where ``cond`` (pred) holds, else ``orelse``."""

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@quick
@dataclass(frozen=True, slots=True)
class Seq:
    """Statements in order. Never nested directly in another ``Seq``."""

    stmts: tuple[Stmt, ...]


@quick
@dataclass(frozen=True, slots=True)
class For(_Noted):
    """``for var in kind(extent): body``. ``notes`` (``notes.py``) are read by lowering."""

    var: Var
    extent: Expr
    body: Stmt
    kind: Kind = Kind.SERIAL
    thread: str = ""
    notes: Notes = field(default_factory=lambda: NO_NOTES, hash=False)

    @property
    def over_blocks(self) -> bool:
        """True for a loop bound to an index of blocks (``blockIdx``)."""
        return self.thread.startswith("blockIdx")

    @property
    def over_threads(self) -> bool:
        """True for a loop bound to an index of threads in a block (``threadIdx``)."""
        return self.thread.startswith("threadIdx")


@quick
@dataclass(frozen=True, slots=True)
class BlockAxis:
    """An axis of a block: it takes the values 0 .. extent-1; the loops around it give ``value``."""

    var: Var
    extent: int
    kind: AxisKind
    value: Expr


@quick
@dataclass(frozen=True, slots=True)
class Block(_Noted):
    """A unit of work. ``name`` is unique in its function."""

    name: str
    axes: tuple[BlockAxis, ...]
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    body: Stmt
    init: Stmt | None = None
    predicate: Expr | None = None
    notes: Notes = field(default_factory=lambda: NO_NOTES, hash=False)


@quick
@dataclass(frozen=True, slots=True)
class Alloc:
    """``buffer`` lives in ``body`` and nowhere else. Only lowering makes these."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A row of ``intrinsics.TABLE`` on boxes of buffers: matrix tiles, barriers, async copies.

    It reads all of ``reads`` and then writes all of ``writes``; ``args`` are its constant operands.
    """

    name: str
    writes: tuple[Region, ...] = ()
    reads: tuple[Region, ...] = ()
    args: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Combine values across ``threads`` neighbors in ``threadIdx.x``; each gets the result.

    Thread t holds one value per buffer: the element 0 of each of ``values`` (``Scope.REGISTER``). A
    combination of two threads has the values of the lower thread under the names ``left`` and those
    of the higher under ``right``; ``combined`` is what comes of them. It is associative; the order
    is the same in every run. Only lowering makes these. All threads of the block get here together.
    """

    values: tuple[Buffer, ...]
    left: tuple[Var, ...]
    right: tuple[Var, ...]
    combined: tuple[Expr, ...]
    threads: int


Stmt: TypeAlias = Store | Let | If | Seq | For | Block | Alloc | Intrinsic | AllReduce


@dataclass(frozen=True, slots=True, eq=False)
class Func(_Noted):
    """A function on ``params`` (inputs first, then outputs: the last ``outputs`` of them).

    ``allocs`` are the intermediate buffers; where each is made and how large it must be is
    derived at lowering from where it is used.
    """

    name: str
    params: tuple[Buffer, ...]
    outputs: int
    body: Stmt
    allocs: tuple[Buffer, ...] = ()
    symbols: tuple[Var, ...] = ()
    notes: Notes = field(default_factory=lambda: NO_NOTES)
