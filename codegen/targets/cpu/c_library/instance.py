"""A model as a C library: the functions that a C program calls, in LLVM IR.

Their names begin with the library's prefix; the header that ``codegen.export`` writes documents
them. ``PREFIX_create`` and ``PREFIX_init`` make an instance, in memory of its own or the caller's;
``PREFIX_run`` runs the plan on it, ``PREFIX_destroy`` ends it; ``PREFIX_input``, ``PREFIX_output``
and ``PREFIX_message`` tell about it. The library keeps no state outside of instances but the seat
of a thread that is inside a call, so that instances know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from .....ir.target import Target
from ....emit.llvm.template import render
from ....plan.interface import (
    ALIGNMENT,
    HUGE,
    HUGE_PAGE,
    INSTANCE,
    OPTIONS,
    STATUS,
    STATUSES,
    TENSOR,
    WEIGHTS,
    WEIGHTS_BEGIN,
    WEIGHTS_MAGIC,
    WEIGHTS_VERSION,
    CArray,
    Interface,
)
from ....runtime.structs import POOL, SEAT
from ..calls.entry import huge_pages_text
from ..threads import pool
from .processor_check import check_text

ARENA_OFFSET = -(-(POOL.bytes + INSTANCE.bytes) // ALIGNMENT) * ALIGNMENT


def memory_bytes(interface: Interface) -> int:
    """Return the bytes of an instance with its arena."""
    return ARENA_OFFSET + interface.arena_bytes


def module_text(interface: Interface, target: Target) -> str:
    """Return the LLVM module of a library; it declares the program that it runs."""
    own = render(__package__, "pool.ll", [SEAT.names])
    workers = None if interface.threads == 1 else pool.workers_text(target)
    if workers is None:
        joined, threads = render(__package__, "pool_serial.ll"), pool.serial_text()
    else:
        tables = [POOL.names, SEAT.names, INSTANCE.names]
        joined, threads = render(__package__, "pool_futex.ll", tables), workers
    checks = check_text(target), _functions(interface), _weights(interface)
    return "".join((pool.base_text(target), own, joined, threads, *checks))


def _functions(interface: Interface) -> str:
    size = memory_bytes(interface)
    texts = _Texts()
    names = {
        "prefix": interface.prefix,
        "memory_bytes": size,
        "made_alignment": HUGE_PAGE if size >= HUGE else ALIGNMENT,
        "huge": str(size >= HUGE).lower(),
        "low_bits": ALIGNMENT - 1,
        "arena_offset": ARENA_OFFSET,
        "threads": interface.threads,
        "most_threads": interface.most_threads,
        "inputs_count": len(interface.inputs),
        "outputs_count": len(interface.outputs),
        "statuses_count": len(STATUSES),
        "inputs": TENSOR.constants([texts.tensor(t) for t in interface.inputs]),
        "outputs": TENSOR.constants([texts.tensor(t) for t in interface.outputs]),
        "statuses": _pointers([texts.string(text) for text in STATUSES.values()]),
        **_statuses("NO_MEMORY", "BAD_ARGUMENT", "BUSY", "MISALIGNED", "TOO_SMALL", "BAD_THREADS"),
        **_statuses("WRONG_PROCESSOR"),
    }
    tables = [POOL.names, SEAT.names, INSTANCE.names, OPTIONS.names, TENSOR.names]
    text = render(__package__, "instance.ll", tables, names)
    unknown = f"@unknown = internal constant {_bytes(b'unknown status' + bytes(1))}\n"
    strings = "\n".join(texts.lines) + "\n"
    return huge_pages_text(linux=True) + text + unknown + strings


def _weights(interface: Interface) -> str:
    """Return how instances find the weights."""
    match interface.weights:
        case "none":
            return render(__package__, "weights_none.ll")
        case "object":
            return render(__package__, "weights_object.ll", [INSTANCE.names])
        case "file":
            names = {
                "seal": "".join(f"\\{byte:02X}" for byte in interface.seal),
                "low_bits": ALIGNMENT - 1,
                "magic": WEIGHTS_MAGIC,
                "version": WEIGHTS_VERSION,
                "begin": WEIGHTS_BEGIN,
                "weights_bytes": interface.weights_bytes,
                "file_bytes": WEIGHTS_BEGIN + interface.weights_bytes,
                **_statuses("MISALIGNED", "NO_WEIGHTS", "NOT_WEIGHTS", "WEIGHTS_VERSION"),
                **_statuses("OTHER_WEIGHTS", "DAMAGED_WEIGHTS"),
            }
            tables = [INSTANCE.names, OPTIONS.names, WEIGHTS.names]
            return render(__package__, "weights_file.ll", tables, names)


def _statuses(*names: str) -> dict[str, object]:
    return {name: STATUS[name] for name in names}


class _Texts:
    """Constants that others point to, written as they are asked for."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def constant(self, value: str) -> str:
        """Return the symbol of a constant."""
        name = f"@constant{len(self.lines)}"
        self.lines.append(f"{name} = internal constant {value}")
        return name

    def string(self, text: str) -> str:
        """Return the symbol of a string that ends with a zero byte."""
        return self.constant(_bytes(text.encode() + b"\0"))

    def tensor(self, tensor: CArray) -> dict[str, object]:
        """Return a row of ``TENSOR``."""
        spec = tensor.spec
        return {
            "name": self.string(spec.name),
            "dtype": self.string(spec.dtype.name),
            "bytes": spec.bytes,
            "item_bytes": spec.dtype.bytes,
            "rank": len(spec.dims),
            "shape": self.constant(_sizes(spec.dims)),
            "strides": self.constant(_sizes(tensor.strides)),
        }


def _bytes(text: bytes) -> str:
    escaped = "".join(f"\\{byte:02X}" for byte in text)
    return f'[{len(text)} x i8] c"{escaped}"'


def _sizes(values: Sequence[int]) -> str:
    return f"[{len(values)} x i64] [{', '.join(f'i64 {v}' for v in values)}]"


def _pointers(symbols: Sequence[str]) -> str:
    return f"[{len(symbols)} x ptr] [{', '.join(f'ptr {s}' for s in symbols)}]"
