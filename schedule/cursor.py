"""References to loops and blocks that survive rewrites, and edits along the path to a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from ..ir.loop.affine import HIGH, bounds
from ..ir.loop.build import as_int
from ..ir.loop.nodes import Alloc, Block, Buffer, For, Func, If, Let, Seq, Stmt, Var
from ..ir.loop.printer import loop_names
from ..ir.loop.visit import children, replace_buffers, seq
from .errors import ScheduleError, did_you_mean

Path: TypeAlias = tuple[Stmt, ...]
"""The statements from the function's body down to a node, inclusive."""

Change: TypeAlias = Callable[[Stmt], Stmt | None]
"""Rewrites a node whose children are rewritten already; returns None to remove it."""


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A reference to a block by its name, which is unique in its function and never changes."""

    name: str


@dataclass(frozen=True, slots=True)
class LoopRef:
    """A reference to a loop by its variable, which survives every rewrite that keeps the loop."""

    var: Var


@dataclass(frozen=True, slots=True)
class Nest:
    """An index of a function: paths of loops and blocks, readers and writers of buffers.

    Blocks are in program order.
    """

    func: Func
    loops: Mapping[Var, Path]
    blocks: Mapping[str, Path]
    readers: Mapping[Buffer, tuple[str, ...]]
    writers: Mapping[Buffer, tuple[str, ...]]

    def block(self, name: str) -> Block:
        """Return the block of that name."""
        node = self.blocks[name][-1]
        assert isinstance(node, Block)
        return node


@lru_cache(maxsize=64)
def nest(func: Func) -> Nest:
    """Return the index of a function, cached: functions compare by identity."""
    loops: dict[Var, Path] = {}
    blocks: dict[str, Path] = {}
    readers: dict[Buffer, list[str]] = {}
    writers: dict[Buffer, list[str]] = {}

    def visit(s: Stmt, above: Path) -> None:
        path = (*above, s)
        match s:
            case Block(name=name, reads=reads, writes=writes):
                blocks[name] = path
                for table, regions in ((readers, reads), (writers, writes)):
                    for r in regions:
                        names = table.setdefault(r.buffer, [])
                        if not names or names[-1] != name:
                            names.append(name)
                return
            case For(var=var):
                loops[var] = path
        for child in children(s):
            visit(child, path)

    visit(func.body, ())
    return Nest(
        func,
        loops,
        blocks,
        {b: tuple(names) for b, names in readers.items()},
        {b: tuple(names) for b, names in writers.items()},
    )


@lru_cache(maxsize=64)
def _names(func: Func) -> Mapping[Var, str]:
    index = nest(func)
    loops = (loop_of(path) for path in index.loops.values())
    return loop_names(func, loops if index.blocks else ())


def named(func: Func, loop: LoopRef | For) -> str:
    """Return the name of a loop as it prints in the function; by it ``loop_named`` finds it."""
    return _names(func).get(loop.var, loop.var.name)


def find_loop(func: Func, ref: LoopRef, asked: str) -> Path:
    """Return the path to a loop; raise ``ScheduleError`` if it no longer exists."""
    path = nest(func).loops.get(ref.var)
    if path is None:
        raise ScheduleError(
            asked,
            f"loop `{ref.var.name}` no longer exists",
            hint="splitting, fusing or emptying a loop removes it; call get_loops again",
            nest=func,
        )
    return path


def find_block(func: Func, ref: BlockRef, asked: str) -> Path:
    """Return the path to a block; raise ``ScheduleError`` if there is none of that name."""
    path = nest(func).blocks.get(ref.name)
    if path is None:
        blocks = nest(func).blocks
        near, have = did_you_mean(ref.name, blocks), f"blocks: {', '.join(blocks)}"
        why = f"there is no block `{ref.name}`"
        raise ScheduleError(asked, why, hint=f"{near} {have}" if near else have)
    return path


def loop_named(func: Func, name: str, block: str | None = None) -> LoopRef:
    """Return the loop that prints by that name, among those around ``block`` if given.

    Where none does, the one that was made by that name: ``i_in`` though it is vectorized since, and
    prints as ``i_lane``. Raises ``ScheduleError`` if there is none, or more than one.

    """
    asked = f"find loop `{name}`" + (f" around block `{block}`" if block is not None else "")
    if block is None:
        loops: Iterable[Var] = nest(func).loops
    else:
        loops = [x.var for x in loops_of(find_block(func, BlockRef(block), asked))]
    known = _names(func)
    found = [v for v in loops if known.get(v) == name] or [v for v in loops if v.name == name]
    if len(found) == 1:
        return LoopRef(found[0])
    if not found:
        names = [known.get(v, v.name) for v in loops]
        near, have = did_you_mean(name, names), f"loops: {', '.join(names) or 'none'}"
        hint = f"{near} {have}" if near else have
        raise ScheduleError(asked, "no loop has that name", hint=hint, nest=func)
    paths = [nest(func).loops[v] for v in found]
    raise ScheduleError(
        asked,
        f"{len(found)} loops were made by that name",
        hint=f"they print as {', '.join(f'`{known.get(v, v.name)}`' for v in found)}",
        nest=func,
        blame=tuple(p[-1] for p in paths),
    )


def consumers(func: Func, block: Block) -> tuple[Path, ...]:
    """Return the other blocks that read what a block writes, in program order."""
    index = nest(func)
    names = {n for r in block.writes for n in index.readers.get(r.buffer, ())}
    return tuple(p for n, p in index.blocks.items() if n in names and n != block.name)


def producers(func: Func, block: Block) -> tuple[Path, ...]:
    """Return the other blocks that write what a block reads, in program order."""
    index = nest(func)
    names = {n for r in block.reads for n in index.writers.get(r.buffer, ())}
    return tuple(p for n, p in index.blocks.items() if n in names and n != block.name)


def loops_of(path: Path) -> tuple[For, ...]:
    """Return the loops on a path, outermost first, including one at its end."""
    return tuple(s for s in path if isinstance(s, For))


def blocks_under(path: Path) -> tuple[Path, ...]:
    """Return the paths of all blocks under the end of a path, in program order."""
    found: list[Path] = []

    def visit(s: Stmt, above: Path) -> None:
        here = (*above, s)
        if isinstance(s, Block):
            found.append(here)
            return
        for child in children(s):
            visit(child, here)

    visit(path[-1], path[:-1])
    return tuple(found)


def block_of(path: Path) -> Block:
    """Return the block at the end of a path."""
    node = path[-1]
    assert isinstance(node, Block)
    return node


def loop_of(path: Path) -> For:
    """Return the loop at the end of a path."""
    node = path[-1]
    assert isinstance(node, For)
    return node


def contains(path: Path, node: Stmt) -> bool:
    """True if ``node`` is on the path."""
    return any(s is node for s in path)


def common(a: Path, b: Path) -> int:
    """Return the number of leading statements that two paths share."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        n += 1
    return n


def is_before(a: Path, b: Path) -> bool:
    """True if the end of ``a`` comes before the end of ``b`` in each iteration of common loops."""
    n = common(a, b)
    if n in (0, len(a), len(b)):
        return False
    below = children(a[n - 1])
    return _place(below, a[n]) < _place(below, b[n])


def _place(items: tuple[Stmt, ...], node: Stmt) -> int:
    return next(i for i, s in enumerate(items) if s is node)


def extent_of(loop: For) -> int | None:
    """Return the constant extent of a loop; None if it is an expression."""
    return as_int(loop.extent)


def ranges_of(loops: Iterable[For]) -> dict[Var, int]:
    """Return the extents of those loops that have a constant one."""
    return {loop.var: n for loop in loops if (n := as_int(loop.extent)) is not None}


def reaches_of(loops: Iterable[For]) -> dict[Var, int]:
    """Return the most iterations that loops may have, the outer ones given first, where some number
    is known to be the most.
    """
    found: dict[Var, int] = {}
    for loop in loops:
        most = as_int(loop.extent)
        if most is None:
            most = bounds(loop.extent, {v: (0, n - 1) for v, n in found.items()})[1]
        if most < HIGH:
            found[loop.var] = max(most, 1)
    return found


def edit(func: Func, changes: Iterable[tuple[Path, Change]]) -> Func:
    """Return ``func`` with the nodes at the ends of paths rewritten; only those paths are rebuilt.

    A loop whose body becomes empty is removed.
    """
    changes = list(changes)
    action: dict[int, list[Change]] = {}
    for path, change in changes:
        action.setdefault(id(path[-1]), []).append(change)
    touched = {id(s) for path, _ in changes for s in path}

    def go(s: Stmt) -> Stmt | None:
        if id(s) not in touched:
            return s
        new = _rebuild(s, go)
        for change in action.get(id(s), ()):
            new = None if new is None else change(new)
        return new

    body = go(func.body)
    return replace(func, body=Seq(()) if body is None else body)


def with_buffer(func: Func, old: Buffer, new: Buffer) -> Func:
    """Return ``func`` with another intermediate buffer in place of ``old``; indices stay."""
    body = replace_buffers(func.body, {old: new})
    return replace(func, body=body, allocs=tuple(new if b is old else b for b in func.allocs))


def _rebuild(s: Stmt, go: Change) -> Stmt | None:
    match s:
        case For(body=body) | Let(body=body) | Alloc(body=body):
            new = go(body)
            return None if new is None else s if new is body else replace(s, body=new)
        case Seq(stmts=stmts):
            kept = [x for x in map(go, stmts) if x is not None]
            return seq(*kept) if kept else None
        case If(then=then, orelse=orelse):
            first = go(then)
            second = None if orelse is None else go(orelse)
            return replace(s, then=first if first is not None else Seq(()), orelse=second)
        case _:
            return s


def fresh_name(func: Func, base: str) -> str:
    """Return a name for a new block: ``base``, with the first free number if it is taken."""
    taken = nest(func).blocks
    name, n = base, 1
    while name in taken:
        name, n = f"{base}_{n}", n + 1
    return name
