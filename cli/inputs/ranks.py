"""The processes of `mpiexec -n N nestwright run`: files by rank, errors on all ranks alike."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...ir.errors import ArgumentError, CommunicationError, NestwrightError

if TYPE_CHECKING:
    from ...codegen.runtime.collectives.communicator import Communicator
    from ...codegen.runtime.executable import Executable
    from ...ir.hlo.nodes import HloModule
    from .arrays import Array

RANK = "{rank}"
"""The part of a file's name in whose place each rank puts its number."""

_FLAGS, _VALUES = 1, 2  # tags
_PATIENCE = 1800.0
"""Seconds that ranks wait for each other before the call: one may compile what others have."""


@dataclass(frozen=True)
class Ranks:
    """This process among those that run a model; ``world`` is None where it is the only one."""

    rank: int = 0
    size: int = 1
    world: Any = None
    own: Communicator | None = None

    def file(self, path: str | None, written: bool = False) -> str | None:
        """Return this rank's file. ``ArgumentError`` if all ranks would write the same one."""
        if path is not None and written and self.size > 1 and RANK not in path:
            raise ArgumentError(
                f"cannot write {path}",
                f"{self.size} ranks have results of their own",
                hint=f"put {RANK} into the name, which each rank replaces by its number",
            )
        return path.replace(RANK, str(self.rank)) if path is not None else None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Fail on every rank if the body fails on one: then nobody waits for it later."""
        if self.own is None:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except Exception as e:
            error = e
        failed = self._failed(error is not None)
        if error is not None:
            raise self._named(error)
        if failed:
            ranks = ", ".join(map(str, failed))
            what = f"rank{'s' * (len(failed) > 1)} {ranks} cannot run the model"
            raise self._named(CommunicationError(what, hint="see the message of that rank"))

    def _failed(self, here: bool) -> list[int]:
        import numpy as np

        flags = self.gathered([np.array([here])], _FLAGS)
        return [rank for rank, (flag,) in enumerate(flags) if flag[0]]

    def gathered(self, values: Sequence[Array], tag: int = _VALUES) -> list[list[Array]]:
        """Return the arrays of every rank, which have the same shapes and types."""
        import numpy as np

        mine = [np.ascontiguousarray(v) for v in values]
        if self.own is None:
            return [mine]
        found = [mine if r == self.rank else list(map(np.empty_like, mine)) for r in self._all]
        others = [r for r in self._all if r != self.rank]
        for n, value in enumerate(mine):
            if value.nbytes and others:
                receives = {r: found[r][n] for r in others}
                self.own.exchange(dict.fromkeys(others, value), receives, tag, "the start")
        return found

    @property
    def _all(self) -> range:
        return range(self.size)

    def require(self, exe: Executable) -> None:
        """Raise ``CommunicationError`` unless the program is for so many ranks."""
        from ...codegen.runtime.collectives.join import exchanges, require_count

        if self.world is not None or exchanges(exe.plan):
            require_count(exe.bundle, self.size)

    def bound(self, exe: Executable) -> Executable:
        """Return the executable for these ranks; ``CommunicationError`` if they differ in it."""
        if self.world is None:
            return exe
        try:
            return exe.on(self.world)
        except NestwrightError as error:
            raise self._named(error) from error

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """End all ranks if the body fails on this one: others may wait for what never comes."""
        try:
            yield
        except BaseException as error:
            if self.world is not None and self.size > 1:
                status = error.exit_status if isinstance(error, NestwrightError) else 3
                atexit.register(self.world.Abort, status)  # after the message
            raise self._named(error) from error

    def _named(self, error: BaseException) -> BaseException:
        """Return the error with the number of this rank as its place."""
        if self.size == 1 or not isinstance(error, NestwrightError):
            return error
        return replace(error, where=": ".join(filter(None, (f"rank {self.rank}", error.where))))


def ranks() -> Ranks:
    """Return this process among those that `mpiexec` started, or on its own."""
    from ...codegen.runtime.collectives.mpi import MpiCommunicator, launched, world

    if not launched():
        return Ranks()
    found = world()
    return Ranks(found.Get_rank(), found.Get_size(), found, MpiCommunicator(found, _PATIENCE))


def own_parts(
    arrays: Sequence[Any], module: Callable[[], HloModule], exe: Executable, rank: int
) -> list[Any]:
    """Return each array, or its part on this rank where the model says how it is cut.

    An array that has the parameter's own shape is taken as it is.
    """
    import numpy as np

    from ...ir.hlo.shardings import tiles

    params = exe.plan.params
    if len(arrays) != len(params) or all(
        np.shape(a) == p.dims for a, p in zip(arrays, params, strict=True)
    ):
        return list(arrays)
    found: list[Any] = []
    cuts = list(map(tiles, module().entry.parameters))
    whole = len(cuts) == len(params)
    for n, (array, param) in enumerate(zip(arrays, params, strict=True)):
        cut = cuts[n] if whole else None
        fits = cut is not None and len(cut.counts) == len(param.dims)
        if cut is not None and fits and np.shape(array) == cut.whole(param.dims):
            array = cut.part(array, param.dims, rank)
        found.append(array)
    return found
