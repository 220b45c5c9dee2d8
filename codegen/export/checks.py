"""Refusals of models that cannot be a C library, or need more than libc, libm and pthread."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence

from ...ir.errors import UnsupportedError
from ...ir.target import Target
from ..plan.bundle import Bundle
from ..plan.interface import Interface
from ..plan.nodes import LibraryThunk, library_thunks
from ..plan.notes import FALLBACK
from ..plan.signature import is_bounded
from ..runtime.elf.layout import MACHINES
from ..targets.compiler import LibraryCode
from ..targets.registry import backend

SHOWN = 8  # calls that a message names

_LIBC_NAMES = """
memcpy memmove memset memcmp posix_memalign free abort open close lseek mmap munmap madvise syscall
sched_yield getpid getauxval
"""
_LIBC = frozenset(_LIBC_NAMES.split())
_PTHREAD = frozenset({"pthread_create", "pthread_join", "pthread_sigmask"})
_LIBM = re.compile(
    r"(fmod|remainder|exp2?|expm1|log(2|10|1p)?|pow|sin|cos|tan|a?sinh?|a?cosh?|a?tanh?|atan2|cbrt|"
    r"sqrt|hypot|floor|ceil|trunc|r?int|nearbyint|round(even)?|ldexp|fma|fmax|fmin|erfc?)f?"
)
_COMPILER = re.compile(r"__[a-z0-9_]+|_GLOBAL_OFFSET_TABLE_|_TLS_MODULE_BASE_")
"""Functions that every compiler brings along: 128-bit division, conversions of 16-bit floats."""


def require_exportable(bundle: Bundle) -> None:
    """Raise ``UnsupportedError`` for a model that needs more than its own code."""
    what = f"{bundle.name} as a C library"
    if calls := library_thunks(bundle.plan):
        why = f"it calls functions of the host: {_listed(calls)}"
        fallback = json.loads(bundle.notes.get(FALLBACK, "{}"))
        if fallback:
            why += f"; the interpreter runs {', '.join(sorted(fallback)[:SHOWN])}"
        hint = "models whose groups are all compiled can be one; `nestwright show` lists the plan"
        raise UnsupportedError(what, why, hint=hint)
    every = (*bundle.plan.params, *bundle.plan.results)
    if is_bounded(every):
        bounded = ", ".join(f"{s.name}: {s}" for s in every if any(s.dynamic))
        raise UnsupportedError(
            what, f"sizes are only bounded: {bounded}", hint="build it for fixed sizes"
        )


def require_target(target: Target) -> Callable[[Interface, Target], LibraryCode]:
    """Return what makes the functions of libraries for a target.

    ``UnsupportedError`` for a target that has no C libraries.
    """
    what = f"a C library for {target.spec!r}"
    hint = 'targets such as "cpu" or "llvm -mtriple=aarch64-linux-gnu" can have one'
    found = backend(target).library
    if found is None:
        raise UnsupportedError(what, "its code does not run on a processor", hint=hint)
    if "linux" not in target.triple or target.machine not in MACHINES.values():
        raise UnsupportedError(
            what, f"libraries are made for Linux, and this is {target.triple}", hint=hint
        )
    return found


def require_known(needed: Iterable[str]) -> None:
    """Raise ``UnsupportedError`` if code needs a name that libc, libm and pthread do not have."""
    known = _LIBC | _PTHREAD
    strange = sorted(
        name
        for name in needed
        if name not in known and not _LIBM.fullmatch(name) and not _COMPILER.fullmatch(name)
    )
    if strange:
        raise UnsupportedError(
            "this model as a C library", f"its code needs {', '.join(strange[:SHOWN])}"
        )


def _listed(calls: Sequence[LibraryThunk]) -> str:
    found = list(dict.fromkeys(f"{t.call.target} ({t.name})" for t in calls))
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
