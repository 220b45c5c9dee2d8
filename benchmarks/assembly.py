"""Counts over an assembly listing: the instructions of its innermost loops by what they use.

They are facts about a kernel that its schedule does not show, which tests assert: spills,
loads for each FMA, broadcasts that are instructions of their own. A loop is the text from a label
to a backward branch to it. Both syntaxes that LLVM prints here are read: AT&T's for x86-64, Arm's
for AArch64.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LABEL = re.compile(r"(\.?L[\w.$]+):")
_BRANCH = re.compile(r"(?:j[a-z]+|b|b\.[a-z]+|cbn?z|tbn?z)\s.*?(\.?L[\w.$]+)$")
_FMA = re.compile(r"v?fn?m(?:add|sub|la|ls)|vpdp|vdpbf16|tdp|[su]dot|[su]mmla|bf?mmla")
_MEMORY = re.compile(r"\(,?%|\[(?:x|sp)")
_STACK = re.compile(r"\(%rsp|\[sp\b")
_ARM_STORE = re.compile(r"st[rpnu1-4]")


@dataclass(frozen=True, slots=True)
class LoopCounts:
    """The instructions of one innermost loop, one iteration of it.

    ``fmas`` are fused multiply-adds, integer or bf16 dot products and products of tiles, ``loads``
    and ``stores`` instructions that access memory, ``broadcasts`` loads of one element into all
    lanes, ``prefetches`` hints. ``stack`` are accesses of the stack frame, which ``loads`` and
    ``stores`` contain as well: spilled values, in a loop of a kernel; ``written`` are the other
    stores.
    """

    label: str
    instructions: int
    fmas: int
    loads: int
    stores: int
    broadcasts: int
    prefetches: int
    stack: int
    written: int


def innermost_loops(listing: str) -> tuple[LoopCounts, ...]:
    """Return the counts of every innermost loop of a listing, in its order."""
    lines = [line.split("#")[0].split("//")[0].strip() for line in listing.splitlines()]
    labels = {m[1]: n for n, line in enumerate(lines) if (m := _LABEL.fullmatch(line))}
    spans = [(labels[t], n) for n, t in _branches(lines) if labels.get(t, n) < n]
    widest = {first: max(last for a, last in spans if a == first) for first, _ in spans}
    whole = sorted(widest.items())
    return tuple(
        _counts(lines[first], lines[first + 1 : last + 1])
        for first, last in whole
        if not any(first < a and b <= last for a, b in whole)
    )


def hottest_loop(listing: str) -> LoopCounts | None:
    """Return the innermost loop that does a kernel's products; None without loops.

    It has the most FMAs, and the most instructions of several such: loops over the edges of a tile
    are shorter. Loops that write memory come after all others: they compute functions of results,
    by FMAs as well.
    """

    def products(loop: LoopCounts) -> tuple[bool, int, int]:
        return loop.written == 0, loop.fmas, loop.instructions

    return max(innermost_loops(listing), key=products, default=None)


def _branches(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and the label of every branch."""
    for n, line in enumerate(lines):
        found = _BRANCH.fullmatch(line)
        if found:
            yield n, found[1]


def _counts(label: str, lines: Sequence[str]) -> LoopCounts:
    code = [line for line in lines if line and not line.startswith(".") and line[-1] != ":"]
    fetches = [line for line in code if line.startswith(("prefetch", "prfm"))]
    memory = [line for line in code if _accesses(line) and line not in fetches]
    stores = [line for line in memory if _stores(line)]
    return LoopCounts(
        label=label.rstrip(":"),
        instructions=len(code),
        fmas=sum(_FMA.match(line) is not None for line in code),
        loads=len(memory) - len(stores),
        stores=len(stores),
        broadcasts=sum("broadcast" in x or x.startswith("ld1r") or "{1to" in x for x in memory),
        prefetches=len(fetches),
        stack=sum(_STACK.search(line) is not None for line in memory),
        written=sum(_STACK.search(line) is None for line in stores),
    )


def _accesses(line: str) -> bool:
    """True if an instruction reads or writes memory; an x86 ``lea`` only computes an address."""
    return _MEMORY.search(line) is not None and not line.startswith(("lea", "nop"))


def _stores(line: str) -> bool:
    """True if an instruction that accesses memory writes it: in AT&T's syntax it comes last."""
    if "%" not in line:
        return _ARM_STORE.match(line) is not None
    operands = line.partition("{%k")[0].rstrip()
    tests = line.startswith(("cmp", "test", "vucomis", "vcomis"))
    return operands.endswith(")") and " " in line.replace("\t", " ") and "," in line and not tests
