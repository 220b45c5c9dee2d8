"""The stub of the driver below a dry run, where this machine can have it: gpu/stub."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple


class Made(NamedTuple):
    """The library's file; without one ``why`` says what is lacking."""

    file: Path | None
    why: str = ""


@contextmanager
def made() -> Iterator[Made]:
    """Yield the library, built for the duration of the block."""
    why = _lacking()
    if why:
        yield Made(None, why)
        return
    from ..stub.library import build

    with TemporaryDirectory(prefix="nestwright-") as folder:
        try:
            found = Made(build(Path(folder)))
        except RuntimeError as error:
            found = Made(None, str(error).split("\n")[0])
        yield found


def _lacking() -> str:
    from ..stub.library import compiler

    try:
        bindings = importlib.util.find_spec("cuda.bindings")
    except ModuleNotFoundError:
        bindings = None
    if bindings is None:
        return "cuda-python is not installed"
    return "" if compiler() else "there is no C compiler"


def preload(file: Path) -> None:
    """Make the library this process's driver: who opens libcuda.so.1 finds it loaded already."""
    ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)


@cache
def control() -> Any:
    """Return the control of this process's stub driver."""
    from ..stub.control import Stub

    return Stub()


def put_behind(exe: Any) -> None:
    """Have the simulator's kernels run where an executable launches its own."""
    from ..stub.simulated import Kernels

    Kernels(exe).attach(control())


def reports() -> list[str]:
    """Return the misuse of the driver that the stub found in this process."""
    found: list[str] = control().reports()
    return found
