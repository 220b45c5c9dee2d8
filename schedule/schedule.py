"""Schedule: rewrites a loop function primitive by primitive, and Trace: what was done, as data.

The two are one file because each gives the other: ``schedule.trace`` and ``trace.replay(func)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..ir.loop.nodes import Block, For, Func, Scope, Var
from ..ir.loop.printer import show
from . import steps as data
from .cursor import (
    BlockRef,
    LoopRef,
    block_of,
    blocks_under,
    consumers,
    extent_of,
    find_block,
    find_loop,
    loop_of,
    loops_of,
    nest,
    producers,
)
from .errors import ScheduleError
from .primitives import (
    banks,
    inline,
    kinds,
    layout,
    locate,
    loops,
    matmul,
    merge,
    reduce,
    stage,
    tensorize,
    threads,
)
from .steps import Argument, BlockName, Loop, Plain, Step

Blockish: TypeAlias = BlockRef | str


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps of a schedule, in order. Loops go by the names of the results that they were."""

    steps: tuple[Step, ...] = ()

    def show(self) -> str:
        """Python that makes the same schedule from ``sch``, one line per step."""
        return "".join(f"{step.show()}\n" for step in self.steps)

    def to_json(self) -> list[Plain]:
        """Lists, dicts, strings and numbers: ``[name, [argument, ...], [result, ...]]`` each."""
        return data.to_json(self.steps)

    @staticmethod
    def from_json(plain: object) -> Trace:
        """The inverse of ``to_json``; a ``ScheduleError`` for anything else."""
        return Trace(data.from_json(plain))

    def replay(self, func: Func) -> Schedule:
        """A schedule of ``func`` with every step done again.

        ``func`` is structurally equal to the one the trace was made from. A ``ScheduleError`` if a
        step is refused or makes no sense there.
        """
        sch = Schedule(func)
        known: dict[str, LoopRef] = {}
        for n, step in enumerate(self.steps):
            _do(sch, known, n, step)
        return sch


@dataclass(slots=True, eq=False)
class Schedule:
    """A function under rewriting. Every method that rewrites is a primitive, checked and recorded.

    ``func`` is the function as it stands. A primitive that is refused raises ``ScheduleError`` and
    leaves the schedule as it was. Blocks are given as references or by name.
    """

    func: Func
    _steps: list[Step] = field(default_factory=list)
    _names: dict[Var, str] = field(default_factory=dict)

    @property
    def trace(self) -> Trace:
        """What was done so far."""
        return Trace(tuple(self._steps))

    def show(self) -> str:
        """The text of the function as it stands."""
        return show(self.func)

    def copy(self) -> Schedule:
        """An independent schedule in the same state. References serve both."""
        return Schedule(self.func, list(self._steps), dict(self._names))

    def become(self, other: Schedule) -> None:
        """Take over what was made of a copy."""
        self.func, self._steps, self._names = other.func, list(other._steps), dict(other._names)

    def blocks(self) -> list[BlockRef]:
        """All blocks in program order."""
        return [BlockRef(name) for name in nest(self.func).blocks]

    def get_block(self, name: str) -> BlockRef:
        """The block of that name."""
        return self._block(name, f"get block `{name}`")

    def get_loops(self, block: Blockish) -> list[LoopRef]:
        """The loops around a block, outermost first."""
        ref = self._block(block, f"get the loops of block `{_name(block)}`")
        found = [LoopRef(x.var) for x in loops_of(nest(self.func).blocks[ref.name])]
        if any(x.var not in self._names for x in found):
            self._record(self.func, "get_loops", (ref,), found)
        return found

    def block(self, block: Blockish) -> Block:
        """The node of a block as it stands."""
        ref = self._block(block, f"look at block `{_name(block)}`")
        return nest(self.func).block(ref.name)

    def loop(self, loop: LoopRef) -> For:
        """The node of a loop as it stands."""
        return loop_of(find_loop(self.func, loop, f"look at loop `{loop.var.name}`"))

    def extent(self, loop: LoopRef) -> int:
        """The extent of a loop; a ``ScheduleError`` where it is no constant."""
        n = extent_of(self.loop(loop))
        if n is None:
            raise ScheduleError(f"tell the extent of loop `{loop.var.name}`", "it is no constant")
        return n

    def get_producers(self, block: Blockish) -> list[BlockRef]:
        """The blocks that write what this one reads, in program order."""
        ref = self._block(block, f"get the producers of block `{_name(block)}`")
        return [BlockRef(block_of(p).name) for p in producers(self.func, self.block(ref))]

    def get_consumers(self, block: Blockish) -> list[BlockRef]:
        """The blocks that read what this one writes, in program order."""
        ref = self._block(block, f"get the consumers of block `{_name(block)}`")
        return [BlockRef(block_of(p).name) for p in consumers(self.func, self.block(ref))]

    # Loops.

    def split(self, loop: LoopRef, factors: Sequence[int | None]) -> list[LoopRef]:
        """Loops of the given extents, outer to inner; one may be None: what is left, rounded up."""
        func, new = loops.split(self.func, loop, tuple(factors))
        return self._record(func, "split", (loop, tuple(factors)), new)

    def fuse(self, *refs: LoopRef) -> LoopRef:
        """One loop instead of several that follow one another, given outermost first."""
        func, new = loops.fuse(self.func, refs)
        return self._record(func, "fuse", (refs,), (new,))[0]

    def reorder(self, *refs: LoopRef) -> None:
        """The given loops of one chain in the given order."""
        self._record(loops.reorder(self.func, refs), "reorder", (refs,))

    def tile(self, i: LoopRef, j: LoopRef, rows: int, columns: int) -> list[LoopRef]:
        """``[i_0, j_0, i_1, j_1]`` with ``i_1`` of extent ``rows``, ``j_1`` of ``columns``."""
        func, new = loops.tile(self.func, i, j, rows, columns)
        return self._record(func, "tile", (i, j, rows, columns), new)

    def merge(self, first: LoopRef, second: LoopRef) -> LoopRef:
        """One loop for two that follow each other and run as often; it is ``first``."""
        func = merge.merge(self.func, first, second)
        return self._record(func, "merge", (first, second), (first,))[0]

    def add_unit_loop(self, block: Blockish) -> LoopRef:
        """A loop of one iteration around a block."""
        ref = _ref(block)
        func, new = loops.add_unit_loop(self.func, ref)
        return self._record(func, "add_unit_loop", (ref,), (new,))[0]

    def parallel(self, loop: LoopRef) -> None:
        """Run the iterations on several threads."""
        self._record(kinds.parallel(self.func, loop), "parallel", (loop,))

    def vectorize(self, loop: LoopRef) -> None:
        """Run the iterations as lanes."""
        self._record(kinds.vectorize(self.func, loop), "vectorize", (loop,))

    def unroll(self, loop: LoopRef) -> None:
        """Write the iterations out."""
        self._record(kinds.unroll(self.func, loop), "unroll", (loop,))

    def bind(self, loop: LoopRef, thread: str) -> None:
        """Give each iteration to a thread, or block of threads, of a GPU's index ``thread``."""
        self._record(threads.bind(self.func, loop, thread), "bind", (loop, thread))

    # Placement.

    def compute_at(
        self,
        block: Blockish,
        loop: LoopRef,
        keep_unit_loops: bool = False,
        multiples: Sequence[int] = (),
    ) -> None:
        """Compute a block inside a loop of its consumers, as much as an iteration needs.

        ``multiples``, one per axis, round up how much that is.
        """
        ref, sizes = _ref(block), tuple(multiples)
        func = locate.compute_at(self.func, ref, loop, keep_unit_loops, sizes)
        more = (keep_unit_loops, sizes) if sizes else _if_set(keep_unit_loops)
        self._record(func, "compute_at", (ref, loop, *more))

    def reverse_compute_at(
        self, block: Blockish, loop: LoopRef, keep_unit_loops: bool = False
    ) -> None:
        """Compute a block inside a loop of its producer, as much as an iteration gives."""
        ref = _ref(block)
        func = locate.reverse_compute_at(self.func, ref, loop, keep_unit_loops)
        self._record(func, "reverse_compute_at", (ref, loop, *_if_set(keep_unit_loops)))

    def compute_inline(self, block: Blockish) -> None:
        """Compute a block's values where they are used, each time anew."""
        ref = _ref(block)
        self._record(inline.compute_inline(self.func, ref), "compute_inline", (ref,))

    def reverse_compute_inline(self, block: Blockish) -> None:
        """Let the producer store what a block makes of its values."""
        ref = _ref(block)
        func = inline.reverse_compute_inline(self.func, ref)
        self._record(func, "reverse_compute_inline", (ref,))

    # Buffers.

    def cache_read(
        self,
        block: Blockish,
        index: int,
        scope: str | Scope = "global",
        also: Sequence[Blockish] = (),
    ) -> BlockRef:
        """Copy what a block reads into a new buffer, for the blocks ``also`` too; the copy."""
        ref, where, others = _ref(block), _scope(scope), tuple(map(_ref, also))
        func, new = stage.cache_read(self.func, ref, index, where, others)
        more = (others,) if others else ()
        self._record(func, "cache_read", (ref, index, where.value, *more))
        return new

    def cache_write(self, block: Blockish, index: int, scope: str | Scope = "global") -> BlockRef:
        """Let a block write a new buffer, which is then copied; the block of the copy."""
        ref, where = _ref(block), _scope(scope)
        func, new = stage.cache_write(self.func, ref, index, where)
        self._record(func, "cache_write", (ref, index, where.value))
        return new

    def set_scope(self, block: Blockish, index: int, scope: str | Scope) -> None:
        """Say where the intermediate buffer of a block's write lives."""
        ref, where = _ref(block), _scope(scope)
        func = stage.set_scope(self.func, ref, index, where)
        self._record(func, "set_scope", (ref, index, where.value))

    def storage_align(
        self, block: Blockish, index: int, dim: int, factor: int, offset: int
    ) -> None:
        """Make the stride of a dimension of a block's shared write ``offset`` modulo ``factor``."""
        ref = _ref(block)
        func = banks.storage_align(self.func, ref, index, dim, factor, offset)
        self._record(func, "storage_align", (ref, index, dim, factor, offset))

    def swizzle(self, block: Blockish, index: int, n: int) -> None:
        """Permute the 16-byte chunks of each row of a block's shared write, ``n`` at a time."""
        ref = _ref(block)
        func = banks.swizzle(self.func, ref, index, n)
        self._record(func, "swizzle", (ref, index, n))

    def transform_layout(
        self,
        block: Blockish,
        index: int,
        order: Sequence[int] | None = None,
        pack: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Lay the intermediate buffer of a block's write out in another way.

        First each (dimension, c) of ``pack`` moves the remainder by c into a new last dimension,
        then ``order`` permutes the dimensions.
        """
        ref, pairs = _ref(block), tuple((d, c) for d, c in pack)
        perm = None if order is None else tuple(order)
        func = layout.transform_layout(self.func, ref, index, perm, pairs)
        self._record(func, "transform_layout", (ref, index, perm, pairs))

    # Matrix products.

    def to_matmul(
        self,
        block: Blockish,
        multiples: Sequence[int] = (1, 1, 1),
        layouts: Sequence[str] = ("mk", "nk"),
    ) -> tuple[BlockRef, BlockRef, BlockRef]:
        """Make a sum of products a batched matrix product over copies of its operands.

        The blocks of the two copies and of the result; see ``primitives.matmul``.
        """
        ref, sizes, orders = _ref(block), tuple(multiples), tuple(layouts)
        func, new = matmul.to_matmul(self.func, ref, sizes, orders)
        self._record(func, "to_matmul", (ref, sizes, orders))
        return new

    def tensorize(self, loop: LoopRef, intrinsic: str) -> None:
        """Make the nest under a loop one operation of the hardware on boxes."""
        func = tensorize.tensorize(self.func, loop, intrinsic)
        self._record(func, "tensorize", (loop, intrinsic))

    # Reductions.

    def decompose_reduction(self, block: Blockish, loop: LoopRef) -> BlockRef:
        """Make the init a block of its own before ``loop``; that block."""
        ref = _ref(block)
        func, new = reduce.decompose_reduction(self.func, ref, loop)
        self._record(func, "decompose_reduction", (ref, loop))
        return new

    def rfactor(self, loop: LoopRef, factor_axis: int = 0) -> BlockRef:
        """Give each iteration of a reduction loop a partial result; the block of those."""
        func, new = reduce.rfactor(self.func, loop, factor_axis)
        self._record(func, "rfactor", (loop, factor_axis))
        return new

    # Notes.

    def annotate(self, ref: LoopRef | Blockish, key: str, value: int | str) -> None:
        """Put a note on a loop or block."""
        target = ref if isinstance(ref, LoopRef) else _ref(ref)
        func = kinds.annotate(self.func, target, key, value)
        self._record(func, "annotate", (_either(target), key, value))

    def unannotate(self, ref: LoopRef | Blockish, key: str) -> None:
        """Take a note away."""
        target = ref if isinstance(ref, LoopRef) else _ref(ref)
        func = kinds.unannotate(self.func, target, key)
        self._record(func, "unannotate", (_either(target), key))

    def _block(self, block: Blockish, asked: str) -> BlockRef:
        ref = _ref(block)
        find_block(self.func, ref, asked)
        return ref

    def _record(
        self,
        func: Func,
        name: str,
        arguments: tuple[object, ...],
        results: Sequence[LoopRef] = (),
    ) -> list[LoopRef]:
        """The last part of every primitive: take over its result and note the step."""
        args = tuple(self._argument(a) for a in arguments)  # before func changes
        for r in results:
            self._names.setdefault(r.var, f"l{len(self._names)}")
        self._steps.append(Step(name, args, tuple(self._names[r.var] for r in results)))
        self.func = func
        return list(results)

    def _argument(self, a: object) -> Argument:
        match a:
            case LoopRef(var=var):
                if var not in self._names:  # one that nobody asked for by name: introduce it
                    path = nest(self.func).loops[var]
                    self.get_loops(block_of(blocks_under(path)[0]).name)
                return Loop(self._names[var])
            case BlockRef(name=name):
                return name
            case tuple():
                return tuple(map(self._argument, a))
            case None | bool() | int() | str() | BlockName() | Loop():
                return a
            case _:
                raise TypeError(f"{a!r} cannot be recorded")


def _name(block: Blockish) -> str:
    return block if isinstance(block, str) else block.name


def _ref(block: Blockish) -> BlockRef:
    return BlockRef(block) if isinstance(block, str) else block


def _if_set(flag: bool) -> tuple[bool, ...]:
    return (True,) if flag else ()


def _either(ref: LoopRef | BlockRef) -> LoopRef | BlockName:
    return ref if isinstance(ref, LoopRef) else BlockName(ref.name)


def _scope(scope: str | Scope) -> Scope:
    try:
        return Scope(scope)
    except ValueError:
        have = ", ".join(repr(s.value) for s in Scope)
        raise ScheduleError(f"use scope {scope!r}", "there is none", hint=have) from None


# Replay: what each argument of a primitive must be.

_SIGNATURES: Mapping[str, tuple[str, ...]] = {
    "get_loops": ("block",),
    "split": ("loop", "factors"),
    "fuse": ("loops",),
    "reorder": ("loops",),
    "tile": ("loop", "loop", "int", "int"),
    "merge": ("loop", "loop"),
    "add_unit_loop": ("block",),
    "parallel": ("loop",),
    "vectorize": ("loop",),
    "unroll": ("loop",),
    "bind": ("loop", "str"),
    "compute_at": ("block", "loop", "bool?", "ints?"),
    "reverse_compute_at": ("block", "loop", "bool?"),
    "compute_inline": ("block",),
    "reverse_compute_inline": ("block",),
    "transform_layout": ("block", "int", "order", "pack"),
    "cache_read": ("block", "int", "str", "words?"),
    "cache_write": ("block", "int", "str"),
    "set_scope": ("block", "int", "str"),
    "storage_align": ("block", "int", "int", "int", "int"),
    "swizzle": ("block", "int", "int"),
    "to_matmul": ("block", "ints", "words"),
    "tensorize": ("loop", "str"),
    "decompose_reduction": ("block", "loop"),
    "rfactor": ("loop", "int"),
    "annotate": ("ref", "str", "note"),
    "unannotate": ("ref", "str"),
}


def _do(sch: Schedule, known: dict[str, LoopRef], n: int, step: Step) -> None:
    asked = f"replay step {n}: {step.name}"
    kinds_wanted = _SIGNATURES.get(step.name)
    if kinds_wanted is None:
        raise ScheduleError(asked, "there is no such primitive")
    needed = sum(not kind.endswith("?") for kind in kinds_wanted)
    if not needed <= len(step.arguments) <= len(kinds_wanted):
        raise ScheduleError(asked, f"it takes {needed} arguments")
    args: list[object] = []
    for kind, a in zip(kinds_wanted, step.arguments, strict=False):
        value = _decoded(kind.removesuffix("?"), a, known)
        if value is _WRONG:
            raise ScheduleError(asked, f"argument {len(args)} is no known {kind}")
        args.append(value)
    method: Callable[..., object] = getattr(sch, step.name)
    spread = step.name in ("fuse", "reorder") and isinstance(args[0], tuple)
    result = method(*args[0]) if spread else method(*args)  # type: ignore[misc]
    refs = [result] if isinstance(result, LoopRef) else result if isinstance(result, list) else []
    if len(refs) != len(step.results):
        raise ScheduleError(asked, f"it gives {len(refs)} loops, not {len(step.results)}")
    for name, ref in zip(step.results, refs, strict=True):
        if known.setdefault(name, ref) != ref:
            raise ScheduleError(asked, f"the name {name!r} is already taken")


_WRONG = object()


def _decoded(kind: str, a: Argument, known: Mapping[str, LoopRef]) -> object:
    match kind, a:
        case ("loop" | "ref", Loop(name=name)):
            return known.get(name, _WRONG)
        case ("loops", tuple()):
            refs = [_decoded("loop", x, known) for x in a]
            return _WRONG if any(r is _WRONG for r in refs) else tuple(refs)
        case ("block", str()) | ("str", str()) | ("note", str()) | ("bool", bool()):
            return a
        case ("ref", BlockName(name=name)):
            return BlockRef(name)
        case ("int" | "note", int()) if not isinstance(a, bool):
            return a
        case ("factors", tuple()):
            return a if all(x is None or _is_int(x) for x in a) else _WRONG
        case ("words", tuple()):
            return a if all(isinstance(x, str) for x in a) else _WRONG
        case ("order", None):
            return None
        case ("order" | "ints", tuple()):
            return a if all(map(_is_int, a)) else _WRONG
        case ("pack", tuple()):
            ok = all(isinstance(x, tuple) and len(x) == 2 and all(map(_is_int, x)) for x in a)
            return a if ok else _WRONG
        case _:
            return _WRONG


def _is_int(x: object) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)
