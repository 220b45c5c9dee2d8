"""Probe this LLVM for a fault that generated code has to avoid; for ``doctor``.

``docs/decisions/masked-stores.md`` describes the fault.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import llvmlite.binding as llvm
import numpy as np

from ...ir.loop.parser import parse
from ...ir.target import HERE, Target
from ..emit.llvm.template import render
from ..runtime import jit
from ..runtime.function import NativeFunc
from ..targets.cpu import toolchain as cpu
from .kernel import compile_flat

_OURS = """\
@func(outputs=2)
def nw_store_one(x: s32[4], bits: s64[2], out: s16[8]):
    bits[0] = 1
    if bits[1] == 0:
        for i in vectorize(4):
            if shift_right_logical(bits[0], i) & 1 != 0:
                out[i] = cast(s16, x[i])
"""
"""The mask is a constant that LLVM finds while it optimizes, and not before."""


@dataclass(frozen=True)
class MaskedStores:
    """True for each form if masked stores of narrowed vectors are correct: LLVM's alone,
    and ours.
    """

    alone: bool
    ours: bool

    @property
    def summary(self) -> str:
        """The finding in words, with LLVM's version."""
        version = ".".join(map(str, llvm.llvm_version_info))
        if not self.ours:
            return f"{version}: masked stores of narrowed vectors write too much; try llvmlite 0.47"
        if not self.alone:
            return f"{version}: its masked stores of narrowed vectors are wrong; our code avoids it"
        return f"{version}: masked stores of narrowed vectors are right"


def masked_stores() -> MaskedStores:
    """Store one lane of a narrowed vector on this machine, in LLVM's own form and in ours."""
    host = Target.parse(HERE)
    library = jit.load([cpu.compile(render(__package__, "llvm_faults.ll"), host)])
    alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address("store_one"))
    kernel = NativeFunc.load(compile_flat(parse(_OURS), host))
    x, bits = np.arange(11, 15, dtype=np.int32), np.zeros(2, np.int64)
    outs = np.full((2, 8), 7, np.int16)
    alone(x.ctypes.data, outs[0].ctypes.data)
    kernel.run_at([x.ctypes.data, bits.ctypes.data, outs[1].ctypes.data])
    right = [11, 7, 7, 7, 7, 7, 7, 7]
    return MaskedStores(*(row.tolist() == right for row in outs))
