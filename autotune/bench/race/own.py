"""Our own builds as ways of a race: a built model's file, called as a user calls it."""

from __future__ import annotations

from typing import Any

from ....codegen.plan.saved.read import read
from ....codegen.runtime.executable import Executable
from ....codegen.targets.registry import codec
from ....ir.comparison import leaves
from ....ir.target import Place
from ..peers.table import Given, Opened, listed

IN_PROCESS: Place = "process"


def open_build(given: Given) -> Opened:
    """Return the executable of a file; a call takes NumPy arrays and gives NumPy arrays.

    Where the model runs on a device its arguments lie there, and its results are fetched.
    """
    exe = Executable(read(given.file, codec))
    values = exe.random_arguments(given.seed)
    if exe.bundle.target.row.place == IN_PROCESS:
        return Opened(lambda: exe(*values), leaves, "")
    near = [_put(exe, v) for v in values]
    return Opened(lambda: [listed(v) for v in leaves(exe(*near))], leaves, "")


def _put(exe: Executable, value: Any) -> Any:
    """Copy an argument, with the arrays in its tuples, to where the model runs."""
    return tuple(_put(exe, v) for v in value) if isinstance(value, tuple) else exe.put(value)
