"""What may not occur any more after a pass of lowering, and the instrument that looks for it.

``NESTWRIGHT_VERIFY=1`` in the environment checks every lowering, as the tests do: a pass that
breaks what an earlier one established is named at once, rather than by what is emitted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...ir.loop.nodes import Alloc, Block, Buffer, Func, Intrinsic, Load, Scope, Store
from ...ir.loop.visit import exprs, walk, walk_expr
from ...ir.passes import BrokenPassError

VERIFY = "NESTWRIGHT_VERIFY"


@dataclass(frozen=True, slots=True)
class Invariant:
    """``broken`` returns the offender in a function, or an empty text."""

    says: str
    broken: Callable[[Func], str]


def _buffers(func: Func) -> Iterable[Buffer]:
    for s in walk(func.body):
        match s:
            case Alloc(buffer=buffer) | Store(buffer=buffer):
                yield buffer
            case Intrinsic(writes=writes, reads=reads):
                yield from (r.buffer for r in (*writes, *reads))
        for e in exprs(s):
            yield from (x.buffer for x in walk_expr(e) if isinstance(x, Load))


def _unplaced(func: Func) -> str:
    return ", ".join(b.name for b in func.allocs)


def _block(func: Func) -> str:
    return next((s.name for s in walk(func.body) if isinstance(s, Block)), "")


def _fragment(func: Func) -> str:
    return next((b.name for b in _buffers(func) if b.scope is Scope.WARP), "")


def _nested_index(func: Func) -> str:
    found = (b.name for b in (*func.params, *_buffers(func)) if len(b.shape) != 1)
    return next(found, "")


PLACED = Invariant("every intermediate buffer is allocated around its uses", _unplaced)
NO_BLOCKS = Invariant("there are no blocks", _block)
NO_FRAGMENTS = Invariant("no buffer is spread over the lanes of a warp", _fragment)
FLAT = Invariant("every buffer has one dimension", _nested_index)


@dataclass(slots=True)
class Established:
    """An instrument: checks after each pass all that it and those before it established.

    ``by_pass`` gives the invariants that hold from a pass on, by its number, the first being 1.
    """

    by_pass: tuple[tuple[Invariant, ...], ...]
    holding: list[Invariant] = field(default_factory=list)

    def after(self, number: int, name: str, func: Func, changed: bool, seconds: float) -> None:
        """Raise ``BrokenPassError``, which names the pass, the function and the offender."""
        if number:
            self.holding += self.by_pass[number - 1]
        for invariant in self.holding:
            if offender := invariant.broken(func):
                raise BrokenPassError(
                    f"lowering {func.name}: after pass {number}, {name}, {offender} breaks what "
                    f"must hold: {invariant.says}"
                )


def asked() -> bool:
    """True if the environment asks for checks."""
    return os.environ.get(VERIFY, "0") not in ("", "0")
