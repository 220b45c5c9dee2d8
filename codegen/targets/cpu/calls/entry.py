"""The C function behind every executable, ``nw_call``, in LLVM IR; see ``runtime.entry``."""

from __future__ import annotations

from .....ir.target import Target
from ....emit.llvm.template import render
from ....plan.symbols import FAILED, INTERRUPTED, NO_MEMORY
from ....runtime.dlpack.elements import CPU
from ....runtime.dlpack.exchange import DERIVED, DL_TENSOR, EXCHANGE
from ....runtime.structs import (
    AS_TUPLE,
    ENTRY,
    PARAMETER,
    PY_BUFFER,
    RECORD,
    RELEASE_GIL,
    RESULT,
)

_C_CONTIGUOUS, _FORMAT, _WRITABLE = 0x38, 0x4, 0x1  # CPython's flags of a buffer, PyBUF_...


def module_text(target: Target) -> str:
    """Return the entry's LLVM module; it is the same for every executable."""
    names = {
        "triple": target.triple,
        "FAILED": FAILED,
        "INTERRUPTED": INTERRUPTED,
        "NO_MEMORY": NO_MEMORY,
        "RELEASE_GIL": RELEASE_GIL,
        "AS_TUPLE": AS_TUPLE,
        "C_CONTIGUOUS": _C_CONTIGUOUS,
        "WITH_FORMAT": _C_CONTIGUOUS | _FORMAT,
        "WRITABLE": _WRITABLE,
    }
    out = {"AS_TUPLE": AS_TUPLE, "WRITABLE": _WRITABLE}
    arrays = [s.names for s in (ENTRY, PARAMETER, PY_BUFFER)]
    tables = [*arrays, RESULT.names, RECORD.names, DL_TENSOR.names]
    others = [*arrays, EXCHANGE.names, DL_TENSOR.names]
    return (
        render(__package__, "entry.ll", tables, names)
        + render(__package__, "out.ll", arrays, out)
        + render(__package__, "exchange.ll", others, {"CPU": CPU, "DERIVED": DERIVED})
        + huge_pages_text("linux" in target.triple)
    )


def huge_pages_text(linux: bool) -> str:
    """Return ``void huge_pages(ptr memory, i64 bytes)``, which asks for large pages on Linux."""
    return render(__package__, "huge_pages_linux.ll" if linux else "huge_pages_other.ll")
