"""Kernels that spill by ptxas's own choice are given the registers that they need.

Where nothing is asked, ptxas takes registers from a kernel to fit one more block on a
multiprocessor, even if it then spills, and without knowing how much shared memory a launch takes.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from . import ptxas
from .ptxas import Cubin, Usage

_HEAD = re.compile(r"\.entry\s+([\w$]+)\([^)]*\)\n((?:\.[^\n]*\n)*)(?=\{)")
_ASKED = ".minnctapersm 1\n"  # one block may take all registers


def spilled(usage: Usage) -> int:
    """Return the bytes that a thread spills and loads again."""
    return usage.spill_stores + usage.spill_loads


def assemble(ptx: str, arch: str, most: int) -> tuple[str, Cubin]:
    """Return a module's machine code, and the PTX that it is made of.

    Kernels that spill, though a thread has fewer registers than ``most``, are assembled again with
    as many as they need; what spills less is taken. Raises as ``ptxas.assemble``.
    """
    made = ptxas.assemble(ptx, arch)
    tight = [n for n, u in made.kernels.items() if spilled(u) and u.registers < most]
    eased = _eased(ptx, tight)
    if eased == ptx:
        return ptx, made
    again = ptxas.assemble(eased, arch)
    before, now = (sum(map(spilled, c.kernels.values())) for c in (made, again))
    return (eased, again) if now < before else (ptx, made)


def _eased(ptx: str, names: Collection[str]) -> str:
    """Return PTX in which kernels with these names ask for nothing but one block at once."""

    def head(found: re.Match[str]) -> str:
        asks = found[1] in names and ".minnctapersm" not in found[2]
        return found[0] + _ASKED if asks else found[0]

    return _HEAD.sub(head, ptx) if names else ptx
