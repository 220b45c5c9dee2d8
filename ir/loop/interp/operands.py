"""Protocols of a thread and of the compiler of threads, as operations on boxes use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from ..nodes import Buffer, Expr, Region
from .scalar import Closure, Env, Value
from .shadow import Shadow


class BoxThread(Protocol):
    """A thread, by its number in the block and its variables."""

    number: int
    env: Env


Write: TypeAlias = Callable[[BoxThread, Iterable[Value]], None]


class BoxCompiler(Protocol):
    """The compiler of threads; ``me`` is the slot of the running thread in an environment."""

    shadow: Shadow | None
    me: int

    def offset(self, buffer: Buffer, ix: tuple[Expr, ...]) -> Callable[[Env], int]:
        """Return the closure of an element's place."""

    def held(self, buffer: Buffer) -> Callable[[Env], list[Value]]:
        """Return the closure of a buffer's elements."""

    def box(self, r: Region) -> Callable[[Env], Sequence[int]]:
        """Return the closure of the places of a box's elements."""

    def reader(self, r: Region, where: str) -> Closure:
        """Return the closure of a box's elements, as an array."""

    def writer(self, r: Region) -> Write:
        """Return what puts values into a thread's box."""

    def unwritten(self, buffer: Buffer, position: int, where: str) -> Value:
        """Return a placeholder for a value never written."""

    def as_thread(self, thread: BoxThread, read: Closure, env: Env) -> Value:
        """Return what ``read`` gives, the access being that thread's."""
