"""References to loops and blocks that survive rewrites, and edits along the path to a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from ..ir.loop.build import as_int
from ..ir.loop.nodes import Alloc, Block, Buffer, For, Func, If, Let, Seq, Stmt, Var
from ..ir.loop.visit import children, seq
from .errors import ScheduleError, did_you_mean

Path: TypeAlias = tuple[Stmt, ...]
"""The statements from the function's body down to a node, both ends included."""

Change: TypeAlias = Callable[[Stmt], Stmt | None]
"""What becomes of a node (its children already rewritten); None removes it."""


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block, by its name, which is unique in its function and never changes."""

    name: str


@dataclass(frozen=True, slots=True)
class LoopRef:
    """A loop, by its variable: a rewrite that keeps the loop keeps the variable."""

    var: Var


@dataclass(frozen=True, slots=True)
class Nest:
    """Where everything stands in a function. Blocks are listed in program order."""

    func: Func
    loops: Mapping[Var, Path]
    blocks: Mapping[str, Path]
    readers: Mapping[Buffer, tuple[str, ...]]
    writers: Mapping[Buffer, tuple[str, ...]]

    def block(self, name: str) -> Block:
        """The block of that name."""
        node = self.blocks[name][-1]
        assert isinstance(node, Block)
        return node


@lru_cache(maxsize=64)
def nest(func: Func) -> Nest:
    """The index of a function. Functions compare by identity, so each version has its own."""
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
                    for buffer in {r.buffer: None for r in regions}:
                        table.setdefault(buffer, []).append(name)
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


def find_loop(func: Func, ref: LoopRef, asked: str) -> Path:
    """The path to a loop; a ``ScheduleError`` if it is no longer there."""
    path = nest(func).loops.get(ref.var)
    if path is None:
        raise ScheduleError(
            asked,
            f"there is no loop `{ref.var.name}` any more",
            hint="a loop that was split, fused or emptied is gone; ask get_loops again",
            nest=func,
        )
    return path


def find_block(func: Func, ref: BlockRef, asked: str) -> Path:
    """The path to a block; a ``ScheduleError`` if there is none of that name."""
    path = nest(func).blocks.get(ref.name)
    if path is None:
        blocks = nest(func).blocks
        near, have = did_you_mean(ref.name, blocks), f"blocks: {', '.join(blocks)}"
        why = f"there is no block `{ref.name}`"
        raise ScheduleError(asked, why, hint=f"{near} {have}" if near else have)
    return path


def loop_named(func: Func, name: str, block: str | None = None) -> LoopRef:
    """The loop of that name, of those around ``block`` where one is given.

    A ``ScheduleError`` if there is none, or more than one.
    """
    asked = f"find loop `{name}`" + (f" around block `{block}`" if block is not None else "")
    if block is None:
        loops: Iterable[Var] = nest(func).loops
    else:
        loops = [x.var for x in loops_of(find_block(func, BlockRef(block), asked))]
    found = [v for v in loops if v.name == name]
    if len(found) == 1:
        return LoopRef(found[0])
    if not found:
        names = list(dict.fromkeys(v.name for v in loops))
        near, have = did_you_mean(name, names), f"loops: {', '.join(names) or 'none'}"
        hint = f"{near} {have}" if near else have
        raise ScheduleError(asked, "there is no loop of that name", hint=hint, nest=func)
    paths = [nest(func).loops[v] for v in found]
    first = ", ".join(f"`{block_of(blocks_under(p)[0]).name}`" for p in paths if blocks_under(p))
    raise ScheduleError(
        asked,
        f"{len(found)} loops have that name",
        hint=f'they are around blocks {first}: find_loop("{name}", block) tells them apart',
        nest=func,
        blame=tuple(p[-1] for p in paths),
    )


def consumers(func: Func, block: Block) -> tuple[Path, ...]:
    """The other blocks that read what a block writes, in program order."""
    index = nest(func)
    names = {n for r in block.writes for n in index.readers.get(r.buffer, ())}
    return tuple(p for n, p in index.blocks.items() if n in names and n != block.name)


def producers(func: Func, block: Block) -> tuple[Path, ...]:
    """The other blocks that write what a block reads, in program order."""
    index = nest(func)
    names = {n for r in block.reads for n in index.writers.get(r.buffer, ())}
    return tuple(p for n, p in index.blocks.items() if n in names and n != block.name)


def loops_of(path: Path) -> tuple[For, ...]:
    """The loops on a path, outermost first (the path's own end included)."""
    return tuple(s for s in path if isinstance(s, For))


def blocks_under(path: Path) -> tuple[Path, ...]:
    """The paths of all blocks under the end of a path, in program order."""
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
    """The block at the end of a path."""
    node = path[-1]
    assert isinstance(node, Block)
    return node


def loop_of(path: Path) -> For:
    """The loop at the end of a path."""
    node = path[-1]
    assert isinstance(node, For)
    return node


def contains(path: Path, node: Stmt) -> bool:
    """Whether ``node`` lies on the path."""
    return any(s is node for s in path)


def common(a: Path, b: Path) -> int:
    """How many statements two paths share from the top."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        n += 1
    return n


def is_before(a: Path, b: Path) -> bool:
    """Whether the end of ``a`` stands wholly before the end of ``b`` in the same iteration."""
    n = common(a, b)
    if n in (0, len(a), len(b)):
        return False
    below = children(a[n - 1])
    return _place(below, a[n]) < _place(below, b[n])


def _place(items: tuple[Stmt, ...], node: Stmt) -> int:
    return next(i for i, s in enumerate(items) if s is node)


def extent_of(loop: For) -> int | None:
    """The constant extent of a loop; None where it is an expression."""
    return as_int(loop.extent)


def ranges_of(loops: Iterable[For]) -> dict[Var, int]:
    """Extents of the loops where constant."""
    return {loop.var: n for loop in loops if (n := as_int(loop.extent)) is not None}


def edit(func: Func, changes: Iterable[tuple[Path, Change]]) -> Func:
    """``func`` with the nodes at the ends of paths changed; only those paths are rebuilt.

    Loops that lose their whole body go with it.
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
    """``base``, or ``base`` with the first free number, as the name of a new block."""
    taken = nest(func).blocks
    name, n = base, 1
    while name in taken:
        name, n = f"{base}_{n}", n + 1
    return name
