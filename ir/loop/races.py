"""Finding races while the interpreter runs: who touched which element in which iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..errors import NestwrightError
from .deps import private_buffers
from .nodes import Buffer, For, Func
from .scalar import Closure, Env

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
