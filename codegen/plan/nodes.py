"""The plan of an executable: what runs in which order, and the location of every value.

A plan is plain data. Its thunks run in order on four memories: the arguments, the results, one
arena for everything between, and the constants. Control flow holds thunks of its own: a loop's
state is at fixed locations, which the condition reads and the body reads and writes. Thunks are
named tuples: Python makes such a class four times as fast, and every load waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ...ir.archive import is_unicode
from ...ir.arrays import ALIGNMENT as ALIGNMENT
from ...ir.dtypes import BY_NAME
from ...ir.errors import ArtifactError
from ...ir.lazy import LazyModule
from .signature import ArraySpec, Tree, slots

if TYPE_CHECKING:
    from ...ir.library.call import LibraryCall

_CALLS = LazyModule("...ir.library.call", __package__)

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
    The body is that many ``turns`` of the model's loop.
    """

    condition: tuple[Thunk, ...]
    predicate: BufferSlice
    body: tuple[Thunk, ...]
    name: str = ""
    trips: int | None = None
    turns: int = 1


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
                often += f" {thunk.turns} turns" if thunk.turns > 1 else ""
                yield f"{indent}while  # {name}{often}"
                yield from _show_all(condition, indent + "    ")
                yield f"{indent}  test {predicate}"
                yield from _show_all(body, indent + "    ")
            case ConditionalThunk(selector=selector, branches=branches, name=name):
                yield f"{indent}branch on {selector}  # {name}"
                for i, branch in enumerate(branches):
                    yield f"{indent}  case {i}"
                    yield from _show_all(branch, indent + "    ")


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON values."""
    return {
        "arena_bytes": plan.arena_bytes,
        "constant_bytes": plan.constant_bytes,
        "params": [_spec_to_json(s) for s in plan.params],
        "results": [_spec_to_json(s) for s in plan.results],
        "param_tree": plan.param_tree,
        "result_tree": plan.result_tree,
        "thunks": [_thunk_to_json(t) for t in plan.thunks],
    }


def _spec_to_json(s: ArraySpec) -> list[Any]:
    return [s.name, s.dtype.name, list(s.dims), list(s.order), list(s.dynamic)]


def _slice_to_json(s: BufferSlice) -> list[Any]:
    own = [s.memory, s.offset, s.bytes, s.index]
    if s.start is None:
        return own
    at = s.start
    return [*own, [_slice_to_json(at.place), at.last, at.step, at.signed]]


def _thunk_to_json(thunk: Thunk) -> dict[str, Any]:
    match thunk:
        case KernelThunk():
            args = [_slice_to_json(s) for s in thunk.args]
            return {
                "do": "call",
                "symbol": thunk.symbol,
                "args": args,
                "outputs": thunk.outputs,
                "task": thunk.task,
                "name": thunk.name,
                "in_place": list(thunk.in_place),
                "facts": thunk.facts,
            }
        case CopyThunk():
            return {
                "do": "copy",
                "source": _slice_to_json(thunk.source),
                "target": _slice_to_json(thunk.target),
                "name": thunk.name,
            }
        case LibraryThunk():
            return {
                "do": "library",
                "call": _CALLS.to_json(thunk.call),
                "operands": [_slice_to_json(s) for s in thunk.operands],
                "results": [_slice_to_json(s) for s in thunk.results],
                "name": thunk.name,
                "facts": thunk.facts,
            }
        case WhileThunk():
            return {
                "do": "while",
                "condition": [_thunk_to_json(t) for t in thunk.condition],
                "predicate": _slice_to_json(thunk.predicate),
                "body": [_thunk_to_json(t) for t in thunk.body],
                "name": thunk.name,
                "trips": thunk.trips,
                "turns": thunk.turns,
            }
        case ConditionalThunk():
            branches = [[_thunk_to_json(t) for t in b] for b in thunk.branches]
            return {
                "do": "branch",
                "selector": _slice_to_json(thunk.selector),
                "branches": branches,
                "name": thunk.name,
            }


MAX_DEPTH = 64  # of control flow in a plan that is read
MAX_DIMS = 64  # of an array, in NumPy 2


def from_json(data: Mapping[str, Any]) -> Plan:
    """Return the plan that ``to_json`` wrote; ``ArtifactError`` for an invalid one."""
    try:
        plan = Plan(
            thunks=_thunks_from_json(data["thunks"], 0),
            arena_bytes=_size(data["arena_bytes"]),
            constant_bytes=_size(data["constant_bytes"]),
            params=tuple(_spec_from_json(s) for s in data["params"]),
            results=tuple(_spec_from_json(s) for s in data["results"]),
            param_tree=_whole_tree(data["param_tree"], len(data["params"])),
            result_tree=_whole_tree(data["result_tree"], len(data["results"])),
        )
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ArtifactError(
            "the plan cannot be read", f"{type(error).__name__}: {error}"
        ) from error
    check(plan)
    return plan


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


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is not a size")
    return value


def _number(value: Any) -> int:
    return value if value == -1 and type(value) is int else _size(value)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not is_unicode(value):
        raise ValueError(f"{value!r} is not a name")
    return value


def _spec_from_json(data: Any) -> ArraySpec:
    name, dtype, dims, order, dynamic = data
    if len(dims) > MAX_DIMS:
        raise ValueError(f"{len(dims)} dimensions")
    places = tuple(_size(d) for d in order)
    if places and sorted(places) != list(range(len(dims))):
        raise ValueError(f"{order!r} is not a permutation of {len(dims)} dimensions")
    if len(dynamic) not in (0, len(dims)) or any(type(m) is not bool for m in dynamic):
        raise ValueError(f"{dynamic!r} does not have a flag for each of {len(dims)} dimensions")
    sizes = tuple(_size(d) for d in dims)
    _size(prod(max(1, d) for d in sizes) * BY_NAME[dtype].bytes)
    return ArraySpec(_name(name), BY_NAME[dtype], sizes, places, tuple(dynamic))


def _whole_tree(data: Any, count: int) -> Tree:
    """Return a tree in which every array occurs once, in order."""
    tree = _tree_from_json(data, count)
    if tuple(_leaves(tree)) != tuple(range(count)):
        raise ValueError(f"{data!r} is not a tree of {count} arrays")
    return tree


def _leaves(tree: Tree) -> Iterator[int]:
    if isinstance(tree, int):
        yield tree
    else:
        for branch in tree:
            yield from _leaves(branch)


def _tree_from_json(data: Any, leaves: int, depth: int = 0) -> Tree:
    if isinstance(data, list):
        if depth > MAX_DEPTH:
            raise ValueError("tuples too deep")
        return tuple(_tree_from_json(d, leaves, depth + 1) for d in data)
    if type(data) is not int or not 0 <= data < leaves:
        raise ValueError(f"no leaf {data!r}")
    return data


def _slice_from_json(data: Any) -> BufferSlice:
    memory, offset, size, index, *start = data
    if memory not in ("param", "result", "arena", "constant") or len(start) > 1:
        raise ValueError(f"no slice {data!r}")
    own = memory, _size(offset), _size(size), _size(index)
    return BufferSlice(*own, *map(_start_from_json, start))


def _start_from_json(data: Any) -> PieceStart:
    place, last, step, signed = data
    own = _slice_from_json(place)
    if own.start is not None or own.bytes not in (1, 2, 4, 8) or type(signed) is not bool:
        raise ValueError(f"no start {data!r}")
    return PieceStart(own, _size(last), _size(step), signed)


def _thunks_from_json(data: Any, depth: int) -> tuple[Thunk, ...]:
    if depth > MAX_DEPTH:
        raise ValueError("control flow too deep")
    return tuple(_thunk_from_json(t, depth) for t in data)


def _thunk_from_json(data: Any, depth: int) -> Thunk:
    match data["do"]:
        case "call":
            args = tuple(_slice_from_json(s) for s in data["args"])
            outputs = _size(data["outputs"])
            if outputs > len(args):
                raise ValueError("more outputs than arguments")
            places = tuple(_size(i) for i in data["in_place"])
            names = _name(data["task"]), _name(data["name"])
            number = _number(data["facts"])
            return KernelThunk(_name(data["symbol"]), args, outputs, *names, places, number)
        case "copy":
            source, target = _slice_from_json(data["source"]), _slice_from_json(data["target"])
            if source.bytes != target.bytes:
                raise ValueError("copy between different sizes")
            return CopyThunk(source, target, _name(data["name"]))
        case "library":
            return _library_from_json(data)
        case "while":
            condition = _thunks_from_json(data["condition"], depth + 1)
            body = _thunks_from_json(data["body"], depth + 1)
            trips, predicate = data.get("trips"), _slice_from_json(data["predicate"])
            if predicate.bytes != 1:
                raise ValueError(f"{predicate} is not a pred")
            return WhileThunk(
                condition,
                predicate,
                body,
                _name(data["name"]),
                None if trips is None else _size(trips),
                max(1, _size(data.get("turns", 1))),
            )
        case "branch":
            branches = tuple(_thunks_from_json(b, depth + 1) for b in data["branches"])
            selector = _slice_from_json(data["selector"])
            if not branches or selector.bytes not in (1, 4):
                raise ValueError(f"{len(branches)} branches on {selector}")
            return ConditionalThunk(selector, branches, _name(data["name"]))
        case other:
            raise ValueError(f"no thunk {other!r}")


def _library_from_json(data: Any) -> LibraryThunk:
    """Return a library call whose slices are as large as its arrays."""
    call = _CALLS.from_json(data["call"])
    operands = tuple(_slice_from_json(s) for s in data["operands"])
    results = tuple(_slice_from_json(s) for s in data["results"])
    have = [s.bytes for s in (*operands, *results)]
    if len(operands) != len(call.operands) or have != [
        t.bytes for t in (*call.operands, *call.results)
    ]:
        raise ValueError(f"the arrays of {call.target!r} do not fit their slices")
    return LibraryThunk(call, operands, results, _name(data["name"]), _number(data["facts"]))
