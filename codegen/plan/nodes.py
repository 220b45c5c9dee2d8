"""The plan of an executable: what runs in which order, and the location of every value.

A plan is plain data. Its thunks run in order on four memories: the arguments, the results, one
arena for everything between, and the constants. Control flow holds thunks of its own: a loop's
state is at fixed locations, which the condition reads and the body reads and writes. Thunks are
named tuples: Python makes such a class four times as fast, and every load waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ...ir.arrays import ALIGNMENT as ALIGNMENT
from ...ir.errors import ArtifactError
from .signature import ArraySpec, Tree, slots

if TYPE_CHECKING:
    from ...ir.library.call import LibraryCall

Memory: TypeAlias = Literal["param", "result", "arena", "constant", "value"]


@dataclass(frozen=True, slots=True)
class BufferSlice:
    """``bytes`` bytes at ``offset`` of a memory; ``index`` is the number of an argument or result.

    While a plan is made, memory ``value`` is that of a value without a location yet, by number.
    With a ``start``, it is so many bytes of the piece that begins there when it is accessed.
    """

    memory: Memory
    offset: int
    bytes: int
    index: int = 0
    start: PieceStart | None = None

    def __str__(self) -> str:
        which = self.memory + (
            str(self.index) if self.memory in ("param", "result", "value") else ""
        )
        return f"{which}[{self.offset}:{self.offset + self.bytes}]{self.start or ''}"

    @property
    def reach(self) -> int:
        """Bytes from the offset on that the slice may be part of."""
        return self.bytes + (self.start.step * self.start.last if self.start else 0)

    @property
    def reads(self) -> tuple[BufferSlice, ...]:
        """The slices that are read to read this one: it, and the place where it starts."""
        return (self, self.start.place) if self.start else (self,)


class PieceStart(NamedTuple):
    """Where a piece of a buffer begins: ``clamp(place, 0, last) * step`` bytes further on.

    ``place`` holds an integer, ``signed`` or not, which is read whenever the piece is accessed.
    """

    place: BufferSlice
    last: int
    step: int
    signed: bool

    def __str__(self) -> str:
        return f" + {self.step} * {self.place}"


class KernelThunk(NamedTuple):
    """Call a compiled kernel; the last ``outputs`` of its arguments are written.

    ``task`` is the canonical key of the group it was compiled from, ``name`` the group's name.
    ``in_place`` are the inputs, by number, that the first output may overwrite: each element is
    read before the element at its index is written. What is written after it is a workspace.
    ``facts`` is the number of its ``plan.facts``, -1 without any.
    """

    symbol: str
    args: tuple[BufferSlice, ...]
    outputs: int
    task: str = ""
    name: str = ""
    in_place: tuple[int, ...] = ()
    facts: int = -1


class CopyThunk(NamedTuple):
    """Copy one slice onto another of the same size."""

    source: BufferSlice
    target: BufferSlice
    name: str = ""


class LibraryThunk(NamedTuple):
    """Let a function of the host compute ``call`` on the operand and result slices.

    ``facts`` is as in ``KernelThunk``.
    """

    call: LibraryCall
    operands: tuple[BufferSlice, ...]
    results: tuple[BufferSlice, ...]
    name: str = ""
    facts: int = -1


class WhileThunk(NamedTuple):
    """Run ``condition``; while the pred at ``predicate`` is true run ``body`` and start again.

    ``trips`` says how often the body runs, where it is known: the condition need not be run then.
    The body is ``unrolled`` iterations of the model's loop.
    """

    condition: tuple[Thunk, ...]
    predicate: BufferSlice
    body: tuple[Thunk, ...]
    name: str = ""
    trips: int | None = None
    unrolled: int = 1


class ConditionalThunk(NamedTuple):
    """Run one branch. A selector of one byte is a pred (true: branch 0); one of four bytes is an
    s32 branch index, and an index out of range means the last branch."""

    selector: BufferSlice
    branches: tuple[tuple[Thunk, ...], ...]
    name: str = ""


Thunk: TypeAlias = KernelThunk | CopyThunk | LibraryThunk | WhileThunk | ConditionalThunk


@dataclass(frozen=True, slots=True)
class Plan:
    """Thunks in order, the size of the arena and the constants, and the signature.

    ``param_tree`` and ``result_tree`` give the tuple structure of the arguments and of the result,
    with leaves by number. A slice's ``index`` of an argument or result counts slots: arrays with
    bounded dimensions have more than one (``runtime.bounded``).
    """

    thunks: tuple[Thunk, ...]
    arena_bytes: int
    constant_bytes: int
    params: tuple[ArraySpec, ...]
    results: tuple[ArraySpec, ...]
    param_tree: Tree
    result_tree: Tree


def children(thunk: Thunk) -> tuple[tuple[Thunk, ...], ...]:
    """Return the thunk lists inside a thunk."""
    match thunk:
        case WhileThunk(condition=condition, body=body):
            return condition, body
        case ConditionalThunk(branches=branches):
            return branches
        case _:
            return ()


def walk(thunks: Sequence[Thunk]) -> Iterator[Thunk]:
    """Yield every thunk, outer ones first."""
    for thunk in thunks:
        yield thunk
        for inner in children(thunk):
            yield from walk(inner)


def kernels(plan: Plan) -> dict[str, KernelThunk]:
    """Return the kernels that the plan calls: symbol -> the first thunk that calls it."""
    found: dict[str, KernelThunk] = {}
    for thunk in walk(plan.thunks):
        if isinstance(thunk, KernelThunk):
            found.setdefault(thunk.symbol, thunk)
    return found


def library_thunks(plan: Plan) -> tuple[LibraryThunk, ...]:
    """Return the calls of host functions, in the order in which native code numbers them."""
    return tuple(t for t in walk(plan.thunks) if isinstance(t, LibraryThunk))


def show(plan: Plan) -> str:
    """Return the plan as text, one thunk a line."""
    lines = [f"arena {plan.arena_bytes} bytes, constants {plan.constant_bytes} bytes"]
    lines += _show_slots("param", plan.params)
    lines += _show_slots("result", plan.results)
    lines += _show_all(plan.thunks, "")
    return "\n".join(lines) + "\n"


def _show_slots(memory: str, specs: Sequence[ArraySpec]) -> Iterator[str]:
    """Yield the arrays, each by the number of its slot; their sizes are the slots after it."""
    number = 0
    for spec in specs:
        name = f" {spec.name}" if memory == "param" else ""
        yield f"{memory} {number}{name}: {spec}{_layout_text(spec)}"
        number += len(slots((spec,)))


def _layout_text(spec: ArraySpec) -> str:
    """Return a layout as HLO writes it, the fastest dimension first; empty for row-major."""
    return "{" + ",".join(map(str, reversed(spec.order))) + "}" if spec.order else ""


def _show_all(thunks: Sequence[Thunk], indent: str) -> Iterator[str]:
    for thunk in thunks:
        match thunk:
            case KernelThunk(symbol=symbol, args=args, outputs=outputs, name=name):
                inputs, written = args[: len(args) - outputs], args[len(args) - outputs :]
                arrow = f"({', '.join(map(str, inputs))}) -> ({', '.join(map(str, written))})"
                yield f"{indent}call {symbol} {arrow}  # {name}"
            case CopyThunk(source=source, target=target, name=name):
                yield f"{indent}copy {source} -> {target}  # {name}"
            case LibraryThunk(call=call, operands=operands, results=results, name=name):
                arrow = f"({', '.join(map(str, operands))}) -> ({', '.join(map(str, results))})"
                yield f"{indent}library {call.target} {arrow}  # {name}"
            case WhileThunk(condition=condition, predicate=predicate, body=body, name=name):
                often = f", {thunk.trips} times" if thunk.trips is not None else ""
                often += f" {thunk.unrolled} iterations" if thunk.unrolled > 1 else ""
                yield f"{indent}while  # {name}{often}"
                yield from _show_all(condition, indent + "    ")
                yield f"{indent}  test {predicate}"
                yield from _show_all(body, indent + "    ")
            case ConditionalThunk(selector=selector, branches=branches, name=name):
                yield f"{indent}branch on {selector}  # {name}"
                for i, branch in enumerate(branches):
                    yield f"{indent}  case {i}"
                    yield from _show_all(branch, indent + "    ")


def check(plan: Plan) -> None:
    """Raise ``ArtifactError`` unless every slice is within its memory and only results and arena
    are written.
    """
    params, results = slots(plan.params), slots(plan.results)
    sizes: dict[str, Callable[[BufferSlice], int]] = {
        "param": lambda s: params[s.index].bytes,
        "result": lambda s: results[s.index].bytes,
        "arena": lambda s: plan.arena_bytes,
        "constant": lambda s: plan.constant_bytes,
    }
    for thunk in walk(plan.thunks):
        read, written = accesses(thunk)
        for s in (*read, *written):
            known = s.memory in sizes and min(s.offset, s.bytes, s.index) >= 0
            try:
                inside = known and s.offset + s.reach <= sizes[s.memory](s)
            except IndexError:
                inside = False
            if not inside:
                raise ArtifactError("the plan is damaged", f"{s} is out of bounds", thunk.name)
        for s in written:
            if s.memory in ("param", "constant") or s.start is not None:
                raise ArtifactError("the plan is damaged", f"{s} would be written", thunk.name)


def check_buffers(plan: Plan, buffers: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ``ArtifactError`` unless the plan's slices have the sizes that every kernel takes."""
    for thunk in walk(plan.thunks):
        if isinstance(thunk, KernelThunk):
            given, takes = tuple(s.bytes for s in thunk.args), buffers[thunk.symbol]
            if given != takes:
                why = f"{thunk.symbol} takes {takes} bytes, the plan gives it {given}"
                raise ArtifactError("the plan is damaged", why, thunk.name)


def accesses(thunk: Thunk) -> tuple[tuple[BufferSlice, ...], tuple[BufferSlice, ...]]:
    """Return the slices that a thunk itself reads and writes, without the thunks inside it.

    What says where a slice starts is read as well.
    """
    match thunk:
        case KernelThunk(args=args, outputs=outputs):
            inputs = len(args) - outputs
            return tuple(r for s in args[:inputs] for r in s.reads), args[inputs:]
        case CopyThunk(source=source, target=target):
            return source.reads, (target,)
        case LibraryThunk(operands=operands, results=results):
            return tuple(r for s in operands for r in s.reads), results
        case WhileThunk(predicate=predicate):
            return (predicate,), ()
        case ConditionalThunk(selector=selector):
            return (selector,), ()
