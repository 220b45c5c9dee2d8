"""The check of a C library that a machine has the instructions it was compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .....ir.target import Target
from .....ir.targets.processor import TILE_REGISTERS, TILES_REQUEST
from ....emit.llvm.template import render


@dataclass(frozen=True, slots=True)
class _Row:
    """A template, and the bits of features by name: the second word's are those from ``word`` on.

    x86-64: the order of GCC's ``enum processor_features``. The others: Linux's HWCAP and HWCAP2.
    """

    template: str
    word: int
    bits: Mapping[str, tuple[int, ...]]


_X86_NAMES = {
    2: "popcnt",
    3: "sse",
    4: "sse2",
    5: "sse3",
    6: "ssse3",
    7: "sse4.1",
    8: "sse4.2",
    9: "avx",
    10: "avx2",
    14: "fma",
    15: "avx512f",
    16: "bmi",
    17: "bmi2",
    20: "avx512vl",
    21: "avx512bw",
    22: "avx512dq",
    23: "avx512cd",
    26: "avx512vbmi",
    27: "avx512ifma",
    34: "avx512vnni",
    36: "avx512bf16",
}
_ROWS: Mapping[str, _Row] = MappingProxyType(
    {
        "x86_64": _Row("processor_x86.ll", 32, {name: (bit,) for bit, name in _X86_NAMES.items()}),
        "aarch64": _Row(
            "processor_hwcap.ll",
            64,
            {
                "neon": (1,),
                "fullfp16": (8, 9, 10),  # and atomic instructions, which came with it
                "dotprod": (20,),
                "i8mm": (64 + 13,),
                "bf16": (64 + 14,),
            },
        ),
        "riscv64": _Row(
            "processor_hwcap.ll", 64, {name: (ord(name) - ord("a"),) for name in "macdfv"}
        ),
    }
)


def check_text(target: Target) -> str:
    """Return the LLVM IR of ``i1 processor_fits()`` for a target."""
    row = _ROWS[target.machine]
    bits = {bit for name in target.features for bit in row.bits.get(name, ())}
    first = sum(1 << bit for bit in bits if bit < row.word)
    second = sum(1 << (bit - row.word) for bit in bits if bit >= row.word)
    text = render(__package__, row.template, names={"first": first, "second": second})
    return text + _tiles_text(target) if target.machine == "x86_64" else text


def _tiles_text(target: Target) -> str:
    """Return the LLVM IR of ``i1 tiles_granted()``, which asks for tile registers if it must."""
    if TILE_REGISTERS not in target.features:
        return render(__package__, "tiles_none.ll")
    number, request, kind = TILES_REQUEST
    names = {"number": number, "request": request, "kind": kind}
    return render(__package__, "tiles_linux.ll", names=names)
