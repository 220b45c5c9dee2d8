"""Constants in the layout that a schedule wants: the copies that need not wait for a call.

A schedule may copy a frozen input into another layout before everything else (``cache_read`` and
``transform_layout``). Such a copy depends on nothing but a constant of the module, so it is cut out
of the kernel, compiled apart, and run once when the model is built or loaded into the tuner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir.loop.nodes import Block, Buffer, Func, Scope, Seq, Stmt
from ..ir.loop.visit import seq, walk
from ..schedule.sketches.analyze import frozen_inputs


@dataclass(frozen=True, slots=True)
class Pack:
    """Input number ``index`` of a function arrives as ``func`` makes it from the constant."""

    index: int
    func: Func


def split_packs(func: Func) -> tuple[Func, tuple[Pack, ...]]:
    """``P = layout(W); C = f(x, P)``  ->  ``C = f(x, P)``, P a parameter; ``P = layout(W)``.

    Only for a frozen W that nothing else reads; P takes its place among the parameters.
    """
    frozen = frozen_inputs(func)
    if not frozen:
        return func, ()
    stmts = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    cut: dict[int, tuple[Buffer, Buffer]] = {}
    for n, s in enumerate(stmts):
        pair = _copy_of(s, frozen)
        if pair is not None and _readers(func.body, pair[0]) == 1 and pair[1] in func.allocs:
            cut[n] = pair
    if not cut or len(cut) == len(stmts):
        return func, ()
    swap = dict(cut.values())
    packs = tuple(
        Pack(func.params.index(source), _alone(func, stmts[n], source, made))
        for n, (source, made) in cut.items()
    )
    main = replace(
        func,
        params=tuple(swap.get(p, p) for p in func.params),
        body=seq(*(s for n, s in enumerate(stmts) if n not in cut)),
        allocs=tuple(b for b in func.allocs if b not in swap.values()),
    )
    return main, packs


def _copy_of(s: Stmt, frozen: frozenset[Buffer]) -> tuple[Buffer, Buffer] | None:
    """(constant, copy) of a nest that does nothing but copy a frozen input."""
    blocks = [b for b in walk(s) if isinstance(b, Block)]
    if len(blocks) != 1 or len(blocks[0].reads) != 1 or len(blocks[0].writes) != 1:
        return None
    source, made = blocks[0].reads[0].buffer, blocks[0].writes[0].buffer
    return (source, made) if source in frozen and made.scope is Scope.GLOBAL else None


def _readers(body: Stmt, buffer: Buffer) -> int:
    blocks = (b for b in walk(body) if isinstance(b, Block))
    return sum(any(r.buffer is buffer for r in b.reads) for b in blocks)


def _alone(func: Func, stmt: Stmt, source: Buffer, made: Buffer) -> Func:
    name = f"{func.name}_pack{func.params.index(source)}"
    return Func(name, (source, made), 1, stmt)
