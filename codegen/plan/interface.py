"""The interface of a model as a C library: names, sizes, statuses, and the structures in memory.

The LLVM IR of the library (``codegen.targets.cpu.c_library``) and its texts in C
(``codegen.export``) are made of the same values.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from .signature import ArraySpec
from .struct_table import Struct

Weights: TypeAlias = Literal["none", "object", "file"]
"""Where a library has its weights: there are none, in its object, or in a file to map."""

MOST_THREADS = 256  # of one instance
ALIGNMENT = 64  # bytes, of memory for instances and of weights
HUGE = 4 << 20  # bytes from which the memory of an instance is put into huge pages
HUGE_PAGE = 2 << 20
WEIGHTS_MAGIC = int.from_bytes(b"nwweight", "little")
WEIGHTS_VERSION = 1
WEIGHTS_BEGIN = 4096  # the offset of the weights in their file: a page, so that they can be mapped

STATUSES: dict[str, str] = {
    "OK": "success",
    "NO_MEMORY": "there is no memory for the instance",
    "BAD_ARGUMENT": "an argument is null",
    "BUSY": "the instance is in use by another thread",
    "MISALIGNED": "the memory is not aligned as it has to be",
    "TOO_SMALL": "the memory is too small for an instance",
    "BAD_THREADS": "that number of threads cannot be had",
    "WRONG_PROCESSOR": "this processor lacks instructions that the library was compiled for, "
    "or the system does not let this process use them",
    "NO_WEIGHTS": "the weights are not given, or their file cannot be mapped (see errno)",
    "NOT_WEIGHTS": "this is not a file of weights",
    "WEIGHTS_VERSION": "the file of weights has another version",
    "OTHER_WEIGHTS": "the weights belong to another model or another build",
    "DAMAGED_WEIGHTS": "the weights are damaged: their size or checksum is wrong",
}
"""What the functions of a library return, by name, and the messages; numbered from 0."""
STATUS = {name: number for number, name in enumerate(STATUSES)}

TENSOR = Struct(
    "tensor",
    {
        "name": "ptr",
        "dtype": "ptr",
        "bytes": "i64",
        "item_bytes": "i64",
        "rank": "i64",
        "shape": "ptr",
        "strides": "ptr",
    },
)
"""An input or an output as C sees it; strides are in elements."""

OPTIONS = Struct(
    "options",
    {"threads": "i32", "weights_path": "ptr", "weights": "ptr", "weights_bytes": "i64"},
)
"""What an instance is made with; the last three are there if the weights are in a file only."""

WEIGHTS = Struct(
    "weights",
    {
        "magic": "i64",
        "version": "i64",
        "seal": "[4 x i64]",
        "bytes": "i64",
        "sum": "i64",
        "sums": "i64",
    },
)
"""The head of a file of weights. ``sum`` adds its words of 64 bits, ``sums`` adds what the sum is
after each: so words that changed their places are found as well."""

INSTANCE = Struct(
    "instance",
    {
        "arena": "ptr",
        "constants": "ptr",
        "mapped": "ptr",
        "mapped_bytes": "i64",
        "scratch": "ptr",
        "owned": "ptr",
        "busy": "i32",
        "handles": f"[{MOST_THREADS} x i64]",
    },
)
"""An instance, after its pool: the memory it uses, the file that is mapped for it, the scratch
memory of its callers, its own memory where it was allocated, whether a call is under way, and its
workers."""


@dataclass(frozen=True, slots=True)
class CArray:
    """An input or output of a library: its identifier in C, and the array itself."""

    identifier: str
    spec: ArraySpec

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance of neighbors in each dimension, in elements."""
        spec, found = self.spec, {}
        order = spec.order or tuple(range(len(spec.dims)))
        for n, d in enumerate(order):
            found[d] = prod(spec.dims[later] for later in order[n + 1 :])
        return tuple(found[d] for d in range(len(spec.dims)))


@dataclass(frozen=True, slots=True)
class Interface:
    """A C library around a plan: its symbols begin with ``prefix``.

    ``threads`` is the number of threads that an instance uses unless told otherwise; a library for
    1 thread has no pool. ``seal`` marks the plan and kernels that weights must have been made for.
    """

    prefix: str
    inputs: tuple[CArray, ...]
    outputs: tuple[CArray, ...]
    arena_bytes: int
    weights_bytes: int
    weights: Weights
    threads: int
    seal: bytes

    @property
    def most_threads(self) -> int:
        """The number of threads that an instance may be given."""
        return 1 if self.threads == 1 else MOST_THREADS


@dataclass(frozen=True, slots=True)
class CLibrary:
    """A C library that was written to ``folder``: its name and files, and its sizes in bytes.

    ``code_bytes`` is machine code, ``memory_bytes`` an instance with its arena.
    """

    name: str
    folder: str
    files: tuple[str, ...]
    code_bytes: int
    weights_bytes: int
    arena_bytes: int
    memory_bytes: int


FUNCTIONS = ("create", "init", "destroy", "run", "input", "output", "message")
"""The functions of a library, after its prefix and an underscore."""
