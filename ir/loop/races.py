"""Finding races while the interpreter runs: who touched which element in which iteration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..errors import NestwrightError
from .nodes import AllReduce, Buffer, For, Func, Intrinsic, Load, Stmt, Store
from .scalar import Closure, Env
from .visit import exprs, walk, walk_expr

Action: TypeAlias = Callable[[Env], None]
Place: TypeAlias = tuple[Buffer, int]
_SEVERAL = -1


@dataclass(eq=False)
class UndefinedError(NestwrightError):
    """The program did something that has no meaning. ``where`` names the block."""


@dataclass(slots=True)
class _Frame:
    """One run of a loop: for each element its last writer, and its reader if there is just one."""

    loop: For
    own: frozenset[Buffer]
    iteration: int = 0
    writers: dict[Place, int] = field(default_factory=dict)
    readers: dict[Place, int] = field(default_factory=dict)


class Watch:
    """Follows the accesses of one run.

    A buffer that only one loop's body uses is private to each iteration: lowering makes it there.
    Iterations may then write the same element, but none may read what another wrote.
    """

    def __init__(self, func: Func) -> None:
        self.frames: list[_Frame] = []
        self.own = private_buffers(func)

    def loop(self, s: For, slot: int, values: Closure, body: Action) -> Action:
        """An action that runs ``s`` and watches its iterations."""
        own = self.own.get(id(s), frozenset())

        def run(env: Env) -> None:
            frame = _Frame(s, own)
            self.frames.append(frame)
            for i in values(env):
                env[slot] = frame.iteration = i
                body(env)
            self.frames.pop()

        return run

    def reading(self, buffer: Buffer, at: Closure, where: str) -> Closure:
        """``at``, noting that the element there is read."""

        def run(env: Env) -> Any:
            place = buffer, at(env)
            for f in self.frames:
                writer = f.writers.get(place, f.iteration)
                if writer != f.iteration:
                    raise _race(f, place, where, f"reads what iteration {writer} wrote")
                if f.readers.setdefault(place, f.iteration) != f.iteration:
                    f.readers[place] = _SEVERAL
            return place[1]

        return run

    def writing(self, buffer: Buffer, at: Closure, where: str) -> Closure:
        """``at``, noting that the element there is written."""

        def run(env: Env) -> Any:
            place = buffer, at(env)
            for f in self.frames:
                if buffer not in f.own:
                    writer = f.writers.get(place, f.iteration)
                    if writer != f.iteration:
                        raise _race(f, place, where, f"writes what iteration {writer} wrote")
                    if f.readers.get(place, f.iteration) != f.iteration:
                        raise _race(f, place, where, "writes what another iteration reads")
                f.writers[place] = f.iteration
            return place[1]

        return run

    def forget(self, buffer: Buffer) -> None:
        """``buffer`` is made anew."""
        for f in self.frames:
            for seen in (f.writers, f.readers):
                for place in [p for p in seen if p[0] is buffer]:
                    del seen[place]


def _race(f: _Frame, place: Place, where: str, why: str) -> UndefinedError:
    name, kind = f.loop.var.name, f.loop.kind.value
    what = f"iterations of the {kind} loop {name} meet at element {place[1]} of {place[0].name}"
    return UndefinedError(what, f"iteration {f.iteration} {why}", where)


def private_buffers(func: Func) -> dict[int, frozenset[Buffer]]:
    """For each loop, by ``id``, the intermediate buffers that only its body uses.

    Lowering makes such a buffer inside the loop, one for each iteration.
    """
    total = _uses(func.body)
    result = {}
    for loop in walk(func.body):
        if isinstance(loop, For):
            here = _uses(loop.body)
            result[id(loop)] = frozenset(b for b in func.allocs if here[b] and here[b] == total[b])
    return result


def _uses(s: Stmt) -> Counter[Buffer]:
    found: Counter[Buffer] = Counter()
    for x in walk(s):
        match x:
            case Store(buffer=buffer):
                found[buffer] += 1
            case Intrinsic(writes=writes, reads=reads):
                found.update(r.buffer for r in (*writes, *reads))
            case AllReduce(values=values):
                found.update(values)
        found.update(y.buffer for e in exprs(x) for y in walk_expr(e) if isinstance(y, Load))
    return found
