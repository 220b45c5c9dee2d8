"""Prepack constants: split the copies of constants out of a kernel, to be run at build time.

A schedule may copy a frozen input into another layout before everything else (``cache_read`` and
``transform_layout``). Such a copy depends on nothing but a constant of the module, so it is split
out of the kernel, compiled separately, and run once when the model is built or loaded into the
tuner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.loop.nodes import Block, Buffer, Func, Scope, Seq, Stmt
from ...ir.loop.visit import buffers_read, buffers_written, replace_buffers, seq, walk
from ...schedule.space.analyze import frozen_inputs


@dataclass(frozen=True, slots=True)
class Pack:
    """``func`` makes input number ``index`` of a function from the constant."""

    index: int
    func: Func


def split_packs(func: Func) -> tuple[Func, tuple[Pack, ...]]:
    """Rewrite ``P = layout(W); C = f(x, P)``  ->  ``C = f(x, P)``, P a parameter; ``P =
    layout(W)``.

    Only for a frozen W that nothing else reads and a P that nothing else writes (in place, say); P
    replaces W among the parameters, as which it is dense.
    """
    frozen = frozen_inputs(func)
    if not frozen:
        return func, ()
    stmts = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    cut: dict[int, tuple[Buffer, Buffer]] = {}
    for n, s in enumerate(stmts):
        pair = _copy_of(s, frozen)
        if pair is not None and pair[1] in func.allocs and _has_single_use(func.body, *pair):
            cut[n] = pair
    if not cut or len(cut) == len(stmts):
        return func, ()
    dense = {b: replace(b, align=None) if b.align else b for _, b in cut.values()}
    swap = {source: dense[made] for source, made in cut.values()}
    packs = tuple(
        Pack(func.params.index(source), _pack_func(func, stmts[n], source, made, dense[made]))
        for n, (source, made) in cut.items()
    )
    rest = seq(*(s for n, s in enumerate(stmts) if n not in cut))
    main = replace(
        func,
        params=tuple(swap.get(p, p) for p in func.params),
        body=replace_buffers(rest, dense),
        allocs=tuple(b for b in func.allocs if b not in dense),
    )
    return main, packs


def _copy_of(s: Stmt, frozen: frozenset[Buffer]) -> tuple[Buffer, Buffer] | None:
    """Return (constant, result) of a nest that makes one buffer out of a frozen input alone."""
    blocks = [b for b in walk(s) if isinstance(b, Block)]
    if len(blocks) != 1 or len(blocks[0].writes) != 1:
        return None
    sources = {r.buffer for r in blocks[0].reads}
    if len(sources) != 1:
        return None
    source, made = sources.pop(), blocks[0].writes[0].buffer
    if source not in frozen or made.scope is not Scope.GLOBAL:
        return None
    return (source, made) if buffers_read(s) | buffers_written(s) <= {source, made} else None


def _has_single_use(body: Stmt, source: Buffer, made: Buffer) -> bool:
    blocks = [b for b in walk(body) if isinstance(b, Block)]
    readers = [b for b in blocks if any(r.buffer is source for r in b.reads)]
    writers = [b for b in blocks if any(w.buffer is made for w in b.writes)]
    return len(readers) == len(writers) == 1


def _pack_func(func: Func, stmt: Stmt, source: Buffer, made: Buffer, dense: Buffer) -> Func:
    name = f"{func.name}_pack{func.params.index(source)}"
    return Func(name, (source, dense), 1, replace_buffers(stmt, {made: dense}))
