"""Tensor memory of a block that is interpreted: columns, products of one thread, loads.

A product is made when it is begun, as accesses of its thread; until a commit of that thread after
it has arrived, nobody may load its sums, and its operands are being read. What a load fills is in
no register until the wait. Who has met others since its fence after that is stale; who touched
tensor memory since its fence before the next meeting has it open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from ...arrays import Array
from ...dtypes import f32, to_numpy
from ..build import as_int
from ..intrinsics import TABLE
from ..nodes import Buffer, Intrinsic
from ..tensor_memory import LANES, LEAST_COLUMNS, MOST_COLUMNS, TensorMatrix
from ..warpgroups import Descriptor, GroupMatrix, descriptors_of
from .operands import BoxCompiler, BoxThread
from .races import UndefinedError
from .scalar import Env, Value
from .shadow import Shadow

Action: TypeAlias = Callable[[Env], None]


@dataclass(eq=False, slots=True)
class TensorMemory:
    """The columns of tensor memory that a block has, and what is under way there.

    ``reads`` are boxes that products of a group read, ``sums`` columns that they update: by the
    number of the group that the thread has begun. ``commits`` are the groups that are to land.
    """

    shadow: Shadow | None
    columns: int = 0
    stale: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    allocating: set[int] = field(default_factory=set)
    group: int = 0
    reads: list[tuple[int, Buffer, list[int]]] = field(default_factory=list)
    sums: dict[int, int] = field(default_factory=dict)
    commits: list[tuple[int, Any]] = field(default_factory=list)
    loaded: dict[int, list[tuple[list[Value], int, Value]]] = field(default_factory=dict)

    def check(self, thread: int, where: str, changes: bool = False) -> None:
        """Raise ``UndefinedError`` if a thread cannot use tensor memory now."""
        if not self.columns:
            why = "tensor_alloc by one warp, then a barrier of the block"
            raise UndefinedError("a block has no columns of tensor memory", where, hint=why)
        if thread in self.stale:
            what = f"thread {thread} may not see tensor memory as others left it"
            raise UndefinedError(what, where, hint="tensor_fence_after")
        asked = self.open if changes else self.allocating
        if others := asked - {thread}:
            what = f"thread {min(others)} may not be done with tensor memory that {thread} uses"
            raise UndefinedError(what, where, hint="tensor_fence_before")

    def fence(self, thread: int) -> None:
        """Let those whom a thread meets next see what it did."""
        self.open.discard(thread)
        self.allocating.discard(thread)

    def land(self) -> Any:
        """The first commit lands; return the barrier at which it arrives."""
        group, bar = self.commits.pop(0)
        for g, buffer, places in self.reads:
            for i in places if self.shadow is not None and g <= group else ():
                self.shadow.end_async(buffer, i)  # type: ignore[union-attr]
        self.reads = [x for x in self.reads if x[0] > group]
        self.sums = {column: g for column, g in self.sums.items() if g > group}
        return bar

    @property
    def busy(self) -> str:
        """Return what is wrong when the block ends; '' if nothing is."""
        if self.columns:
            return "a block ends with columns of tensor memory"
        return "a block ends while a product is under way" if self.reads or self.sums else ""


class TensorState(Protocol):
    """The state of a block, of which operations here use its tensor memory."""

    tensor: TensorMemory


class TensorThread(BoxThread, Protocol):
    """A thread of a block with tensor memory."""

    @property
    def phases(self) -> TensorState:
        """The state of its block."""


WarpAction: TypeAlias = Callable[[Sequence[TensorThread]], None]


def operand_places(
    shadow: Shadow | None,
    buffer: Buffer,
    begin: int,
    rows: int,
    x: GroupMatrix | TensorMatrix,
    layout: Descriptor,
) -> Array:
    """Return where the elements of an operand are, [rows, k]."""
    size = buffer.dtype.bytes
    base = 0 if shadow is None else shadow.offsets.get(buffer, 0)
    row, k = np.arange(rows)[:, None], np.arange(x.k)[None]
    return np.asarray((layout.address(base + begin * size, row, k, size) - base) // size)


def widened(values: Array, x: GroupMatrix | TensorMatrix) -> Array:
    """Return an operand in the type of the sums."""
    if x.operands == f32:
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return values.astype(to_numpy(x.sums))


def own_tensor_action(c: BoxCompiler, s: Intrinsic, text: str) -> Action | None:
    """Return what one thread does; None for what it does not do alone."""
    me = c.me
    if TABLE[s.name].product is not None:
        return _multiply(c, s, text)
    match s.name:
        case "tensor_fence_before":
            return lambda env: env[me].phases.tensor.fence(env[me].number)
        case "tensor_fence_after":
            return lambda env: env[me].phases.tensor.stale.discard(env[me].number)
        case "tensor_commit":
            return _commit(c, s, text)
        case _:
            return None


def _commit(c: BoxCompiler, s: Intrinsic, text: str) -> Action:
    (bar,), me = s.writes, c.me
    at = c.offset(bar.buffer, tuple(x.start for x in bar.ranges))

    def begin(env: Env) -> None:
        t, tensor = env[me], env[me].phases.tensor
        tensor.commits.append((tensor.group, t.phases.seen((bar.buffer, at(env)), text)))
        tensor.group += 1
        t.phases.flights.append(lambda: t.phases.arrive(t.number, tensor.land(), 0, text))

    return begin


def _multiply(c: BoxCompiler, s: Intrinsic, text: str) -> Action:
    x, me, shadow = TABLE[s.name].product, c.me, c.shadow
    assert x is not None
    to, operands = s.writes[0], s.reads[2:]
    flag, held = c.reader(s.reads[0], text), c.held(to.buffer)
    at = [c.offset(r.buffer, tuple(e.start for e in r.ranges)) for r in (to, *operands)]
    data = [c.held(r.buffer) for r in operands]
    columns, kind = to.buffer.shape[0], to_numpy(x.sums).type
    layouts = descriptors_of(s.args)

    def run(env: Env) -> None:
        t, tensor = env[me], env[me].phases.tensor
        tensor.check(t.number, text, changes=True)
        parts = []
        for n, (rows, r, dtype) in enumerate(zip((x.m, x.n), operands, x.types, strict=True)):
            places = operand_places(shadow, r.buffer, at[n + 1](env), rows, x, layouts[n])
            flat = places.ravel().tolist()
            for i in flat if shadow is not None else ():
                shadow.read_async(r.buffer, i, text)  # type: ignore[union-attr]
            tensor.reads.append((tensor.group, r.buffer, flat))
            values = data[n](env)
            found = np.array([values[i] for i in flat], to_numpy(dtype)).reshape(places.shape)
            parts.append(widened(found, x))
        change, adds, sums = parts[0] @ parts[1].T, int(flag(env)[0]), held(env)
        first = at[0](env)
        for lane, column in np.ndindex(x.m, x.n):
            i = lane * columns + first + column
            if shadow is not None:
                if adds:
                    shadow.read(to.buffer, i, text)
                shadow.write(to.buffer, i, text)
            if adds and sums[i] is None:
                raise UndefinedError("a sum that was never written is added to", text)
            value = change[lane, column]
            sums[i] = kind(sums[i] + value if adds else value)
        tensor.sums.update(dict.fromkeys(range(first, first + x.n), tensor.group))

    return run


def warp_tensor_action(c: BoxCompiler, s: Intrinsic, text: str) -> WarpAction | None:
    """Return what the threads of a warp do together; None for other intrinsics."""
    known = {"tensor_alloc": _alloc, "tensor_free": _free, "tensor_wait": _wait}
    make = _load if s.name.startswith("tensor_load") else known.get(s.name)
    return None if make is None else make(c, s, text)


def _alloc(c: BoxCompiler, s: Intrinsic, text: str) -> WarpAction:
    (slot,), (count,) = s.writes, s.args
    at, held = c.offset(slot.buffer, (slot.ranges[0].start,)), c.held(slot.buffer)

    def run(threads: Sequence[TensorThread]) -> None:
        t = threads[0]
        if t.phases.tensor.columns or not _may_be_had(count):
            why = f"a block has a power of two, {LEAST_COLUMNS} to {MOST_COLUMNS}, once"
            raise UndefinedError(f"{count} columns of tensor memory are not to be had", text, why)
        if c.shadow is not None:
            c.shadow.thread = t.number
            c.shadow.write(slot.buffer, at(t.env), text)
        held(t.env)[at(t.env)] = np.uint32(0)
        t.phases.tensor.columns = count
        t.phases.tensor.open.add(t.number)
        t.phases.tensor.allocating.add(t.number)

    return run


def _may_be_had(columns: int) -> bool:
    return LEAST_COLUMNS <= columns <= MOST_COLUMNS and not columns & (columns - 1)


def _free(c: BoxCompiler, s: Intrinsic, text: str) -> WarpAction:
    def run(threads: Sequence[TensorThread]) -> None:
        t = threads[0]
        t.phases.tensor.check(t.number, text, changes=True)
        if t.phases.tensor.columns != s.args[0]:
            why = f"the block has {t.phases.tensor.columns}"
            raise UndefinedError(f"{s.args[0]} columns of tensor memory are freed", text, why)
        t.phases.tensor.columns = 0

    return run


def _load(c: BoxCompiler, s: Intrinsic, text: str) -> WarpAction:
    to, of = s.writes[0], s.reads[0]
    count, columns = as_int(to.ranges[0].extent) or 0, of.buffer.shape[0]
    at = c.offset(of.buffer, (of.ranges[0].start,))
    place, own, data = c.offset(to.buffer, (to.ranges[0].start,)), c.held(to.buffer), c.held

    def run(threads: Sequence[TensorThread]) -> None:
        for t in threads:
            tensor, first = t.phases.tensor, at(t.env)
            tensor.check(t.number, text)
            if any(column in tensor.sums for column in range(first, first + count)):
                hint = "tensor_commit, and mbarrier_wait for the phase"
                raise UndefinedError("sums that are under way are loaded", text, hint=hint)
            registers, values = own(t.env), data(of.buffer)(t.env)
            for n in range(count):
                i = t.number % LANES * columns + first + n
                if c.shadow is not None:
                    c.shadow.thread = t.number
                    c.shadow.read(of.buffer, i, text)
                if values[i] is None:
                    raise UndefinedError("a sum that was never written is loaded", text)
                registers[place(t.env) + n] = None
                late = tensor.loaded.setdefault(t.number, [])
                late.append((registers, place(t.env) + n, values[i]))
            tensor.open.add(t.number)

    return run


def _wait(c: BoxCompiler, s: Intrinsic, text: str) -> WarpAction:
    def run(threads: Sequence[TensorThread]) -> None:
        for t in threads:
            for registers, n, value in t.phases.tensor.loaded.pop(t.number, []):
                registers[n] = value

    return run
