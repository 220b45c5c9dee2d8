"""The plan of an executable as JSON values, and back, read without trust."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ....ir.archive import is_unicode
from ....ir.dtypes import BY_NAME
from ....ir.errors import ArtifactError
from ....ir.lazy import LazyModule
from ..nodes import (
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    LibraryThunk,
    PieceStart,
    Plan,
    Thunk,
    WhileThunk,
    check,
)
from ..signature import ArraySpec, Tree, leaves

_CALLS = LazyModule("....ir.library.call", __package__)

MAX_DEPTH = 64  # of control flow in a plan that is read
MAX_DIMS = 64  # of an array, in NumPy 2


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
                "unrolled": thunk.unrolled,
            }
        case ConditionalThunk():
            branches = [[_thunk_to_json(t) for t in b] for b in thunk.branches]
            return {
                "do": "branch",
                "selector": _slice_to_json(thunk.selector),
                "branches": branches,
                "name": thunk.name,
            }


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
    if tuple(leaves(tree)) != tuple(range(count)):
        raise ValueError(f"{data!r} is not a tree of {count} arrays")
    return tree


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
                max(1, _size(data.get("unrolled", 1))),
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
