"""Control of the stub driver by the process that uses it: failures, kernels, the log, reports."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .library import NAME

ILLEGAL_ADDRESS, LAUNCH_FAILED = 700, 719
KINDS = ("stream", "event", "module", "function", "graph", "executable graph", "context")


class _Launch(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("params", ctypes.POINTER(ctypes.c_void_p)),
    )


_Run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Launch))


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch as its kernel sees it; ``words`` are the parameters as 64-bit numbers."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Called:
    """A line of the log: a function, what it was asked, and the status that it gave."""

    function: str
    asked: str
    status: int


Kernel = Callable[[Launched], object]
_RESULTS = {
    "stub_log": ctypes.c_char_p,
    "stub_reports": ctypes.c_char_p,
    "stub_used": ctypes.c_size_t,
    "stub_functions": ctypes.c_size_t,
    "stub_calls": ctypes.c_long,
    "stub_live": ctypes.c_long,
}
_LINE = re.compile(r"(cu\w+)(?: (.*))? = (\d+)")


class Stub:
    """The stand-in of this process."""

    def __init__(self, library: Path | None = None) -> None:
        """That of the environment (see ``library.environment``), or a library that is loaded now:
        before the bindings look for theirs. ``OSError`` where there is none."""
        self.native: Any = ctypes.CDLL(str(library or NAME))
        for name, kind in _RESULTS.items():
            getattr(self.native, name).restype = kind
        self.raised: list[BaseException] = []  # by kernels
        self._held: list[object] = []

    def kernel(self, name: str, run: Kernel, pointers: int = 0) -> None:
        """Have launches of a kernel call a function, "" for all kernels without one.

        ``pointers`` has a bit for each parameter that is an address on the device: one that is
        none is a fault. What the function raises is kept, and is a fault as well.
        """

        def called(given: Any) -> int:
            try:
                run(_launched(given.contents))
            except BaseException as error:
                self.raised.append(error)
                return LAUNCH_FAILED
            return 0

        callback = _Run(called)
        self._held.append(callback)
        address = ctypes.cast(callback, ctypes.c_void_p)
        self.native.stub_kernel(name.encode(), address, ctypes.c_uint64(pointers))

    def fail(self, function: str, status: int, nth: int = 1, times: int = 1) -> None:
        """Have the ``nth`` call of a function from now on, and ``times`` in all, give a status."""
        numbers = ctypes.c_long(nth), ctypes.c_long(times)
        if self.native.stub_fail(function.encode(), *numbers, status):
            raise KeyError(function)

    def heal(self) -> None:
        """Forget all failures that were asked for."""
        self.native.stub_heal()

    def hide(self, function: str) -> None:
        """Let a function not be found; before the bindings look it up."""
        if self.native.stub_hide(function.encode()):
            raise KeyError(function)

    def fault(self, kernel: str = "", nth: int = 1, status: int = ILLEGAL_ADDRESS) -> None:
        """Let the ``nth`` run of a kernel from now on ("" for any) end the context."""
        self.native.stub_fault(kernel.encode(), ctypes.c_long(nth), status)

    def refusal(self, text: str) -> None:
        """Set the compiler log that an injected failure of cuModuleLoadDataEx writes."""
        self.native.stub_jit_log(text.encode())

    def memory(self, total: int) -> None:
        """Give the device so many bytes."""
        self.native.stub_memory(ctypes.c_size_t(total))

    def capability(self, number: int) -> None:
        """Let the device be of another architecture: 100 is an sm_100."""
        self.native.stub_capability(number)

    @property
    def used(self) -> int:
        """Bytes of device memory that are allocated."""
        return int(self.native.stub_used())

    def patience(self, questions: int) -> None:
        """Let work be done when it is asked for so many times."""
        self.native.stub_patience(questions)

    def calls(self, function: str) -> int:
        """Return the number of calls of a function."""
        return int(self.native.stub_calls(function.encode()))

    def live(self, kind: str) -> int:
        """Return the number of handles of a kind (see ``KINDS``) that were not destroyed."""
        return int(self.native.stub_live(KINDS.index(kind) + 1))

    def depth(self) -> int:
        """Return the contexts on the stack of this thread."""
        return int(self.native.stub_depth())

    def functions(self) -> tuple[str, ...]:
        """Return all functions of the driver that are modeled."""
        room = self.native.stub_functions(None, ctypes.c_size_t(0))
        text = ctypes.create_string_buffer(room)
        self.native.stub_functions(text, ctypes.c_size_t(room))
        return tuple(sorted(set(text.value.decode().split())))

    def text(self) -> str:
        """Return the log: a line for each call, in order, and what happened in between."""
        return str(self.native.stub_log().decode(errors="replace"))

    def log(self, function: str = "") -> list[Called]:
        """Return the calls in order, of one function if it is named."""
        lines = map(_LINE.fullmatch, self.text().splitlines())
        found = [Called(m[1], m[2] or "", int(m[3])) for m in lines if m]
        return [c for c in found if function in ("", c.function)]

    def reports(self) -> list[str]:
        """Return the errors found: misuse of the driver, and guard bytes that were overwritten."""
        self.native.stub_check()
        return str(self.native.stub_reports().decode(errors="replace")).splitlines()

    def clear(self) -> None:
        """Forget the log and the reports."""
        self.native.stub_clear()


def _launched(given: Any) -> Launched:
    words = (ctypes.c_uint64.from_address(given.params[n]).value for n in range(given.count))
    name = given.name.decode()
    return Launched(name, tuple(given.grid), tuple(given.block), given.shared, tuple(words))
