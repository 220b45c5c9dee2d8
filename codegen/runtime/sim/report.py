"""The report of a faulty simulated launch as an error that names kernel, buffer, element and
threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod

from ....ir.errors import SimulationError
from .structs import LAUNCH, FaultKind


class _Report:
    """The report's fields by name."""

    def __init__(self, fields: Mapping[str, int]) -> None:
        self.fields = fields

    def __getitem__(self, name: str) -> int:
        return self.fields[name]

    def text(self, name: str) -> str:
        return _string(self[name])

    def launch(self, name: str) -> int:
        """Return a field of the launch's description."""
        return int(LAUNCH.read(self["launch"])[name])

    @property
    def threads(self) -> int:
        """Threads that run together: those of a block, or of a cluster."""
        return self.each * prod(self.launch(f"ranks.{axis}") for axis in "xyz")

    @property
    def each(self) -> int:
        """Threads of a block."""
        return prod(self.launch(f"block.{axis}") for axis in "xyz")

    def who(self, thread: str, block: str) -> str:
        """Return a thread and its block by their indices."""
        first, last = self._place(self[thread] % self.each, "block"), self._block(thread, block)
        return f"thread {first} of block {last}"

    def _block(self, thread: str, block: str) -> str:
        """Return the indices of a thread's block, given the number of its cluster."""
        grid, size = self._of("grid"), self._of("ranks")
        first = self._split(self[block], [g // c for g, c in zip(grid, size, strict=True)])
        rank = self._split(self[thread] // self.each, size)
        return self._text([n * c + r for n, c, r in zip(first, size, rank, strict=True)], "grid")

    @property
    def block_of_other(self) -> str:
        """The indices of the other thread's block."""
        return self._block("other", "other_block")

    def _of(self, what: str) -> list[int]:
        return [self.launch(f"{what}.{axis}") for axis in "xyz"]

    def _place(self, number: int, of: str) -> str:
        return self._text(self._split(number, self._of(of)), of)

    def _split(self, number: int, extents: Sequence[int]) -> list[int]:
        x, y, _ = extents
        return [number % x, number // x % y, number // x // y]

    def _text(self, numbers: list[int], of: str) -> str:
        x, y, z = self._of(of)
        while len(numbers) > 1 and (x, y, z)[len(numbers) - 1] == 1:
            numbers.pop()
        return str(numbers[0]) if len(numbers) == 1 else f"({', '.join(map(str, numbers))})"


def _string(address: int) -> str:
    return ctypes.string_at(address).decode()


def error(fields: Mapping[str, int], seed: int) -> SimulationError:
    """Return the error that a report (``structs.REPORT``) describes."""
    r = _Report(fields)
    where = f"kernel {_string(r.launch('name'))}, seed {seed}"
    what, why, hint = _explained(r)
    return SimulationError(what, why, where, hint)


def _explained(r: _Report) -> tuple[str, str, str]:
    """Return the fault, the details, and what to do."""
    kind = FaultKind(r["kind"])
    if kind is FaultKind.UNJOINED:
        why = f"{r['other']} blocks have arrived at counter {r['element']} when the launch ends"
        return "no block of threads was the last one", why, "a join waits for every block once"
    name, who = r.text("subject"), r.who("thread", "block")
    if kind is FaultKind.DIVERGED:
        return _diverged(r, name, who)
    if kind in _OF_BARRIERS:
        return _barrier(r, kind, who)
    if kind in _OF_PRODUCTS:
        return _product(kind, name, who)
    place, verb = f"{name}[{r['element']}]", "writes" if r["write"] else "reads"
    if kind in _OF_COPIES:
        return _copy(r, kind, place, who, verb)
    if kind in _OF_TENSOR_MEMORY:
        return _tensor_memory(kind, place, name, who)
    match kind:
        case FaultKind.RACE:
            return _race(r, place, who, verb)
        case FaultKind.UNWRITTEN:
            hint = "nothing writes it, or a barrier is missing after the write"
            return f"{place} is read before anything is written there", f"by {who}", hint
        case FaultKind.BOUNDS:
            why = f"{who} {verb} it; {name} has {r['elements']} elements"
            return f"{place} is out of bounds", why, ""
        case FaultKind.NO_BLOCK:
            why = f"{who} reads {place} of rank {r['phase']}, of {r['expected']} blocks"
            return "a read of a block that the cluster does not have", why, ""
        case FaultKind.ENDED:
            why = f"{who} reads it, and no barrier of the cluster is between that and the end"
            what = f"block {r.block_of_other} may end while its {name} is read"
            return what, why, "cluster_barrier after the last read"
        case FaultKind.BARE:
            hint = "mbarrier_init by one thread, then a barrier of the block"
            return f"{place} is used before it is initialized", f"by {who}", hint
        case _:
            why = f"{who} {verb} it"
            return f"{place} is not aligned as the operation needs it", why, ""


def _diverged(r: _Report, name: str, who: str) -> tuple[str, str, str]:
    there = f"waits at {r.text('other_site')}" if r["other_site"] else "has ended"
    why = f"{who} waits, {r.who('other', 'other_block')} {there}"
    if r["other"] >= r.threads:
        return f"not all threads reach {name}", f"{who} waits, and a block has {r.threads}", ""
    return f"not all threads reach {name}", why, "a divergent branch must not contain a barrier"


_OF_COPIES = frozenset(
    {
        FaultKind.PENDING,
        FaultKind.UNFENCED,
        FaultKind.UNWAITED,
        FaultKind.BUSY,
        FaultKind.LEFT_READ,
    }
)


def _copy(r: _Report, kind: FaultKind, place: str, who: str, verb: str) -> tuple[str, str, str]:
    """Return a fault of what reads or writes memory asynchronously."""
    name = r.text("subject")
    match kind:
        case FaultKind.PENDING:
            why = f"{who} {verb} it, {r.who('other', 'other_block')} started the copy"
            hint = "wait_async before the access, and a barrier if others copied"
            return f"{place} is accessed while an asynchronous copy to it is in progress", why, hint
        case FaultKind.UNFENCED:
            why = f"{r.who('other', 'other_block')} stored it, {who} reads it asynchronously"
            hint = "fence_proxy_async after the store, and a barrier if others stored"
            return f"{place} may not be seen by the asynchronous proxy", why, hint
        case FaultKind.UNWAITED:
            why = f"{who} {verb} it, and did not wait for the mbarrier's phase"
            hint = "mbarrier_wait before the access, with the parity of the phase"
            return f"{place} was written by an asynchronous copy", why, hint
        case FaultKind.BUSY:
            why = f"{who} writes it, {r.who('other', 'other_block')} began to read"
            hint = "wgmma_wait or tma_wait_read before the write, and a barrier if others read"
            return f"{place} is written while it is read asynchronously", why, hint
        case _:
            hint = "tma_wait_read, or wgmma_wait, by the threads that began it"
            return f"a block ends while {name} is read asynchronously", f"{who} began it", hint


_OF_PRODUCTS = frozenset(
    {FaultKind.DIFFERS, FaultKind.UNFENCED_SUMS, FaultKind.HELD, FaultKind.SUMS}
)


def _product(kind: FaultKind, name: str, who: str) -> tuple[str, str, str]:
    """Return a fault of an asynchronous product's operands or sums."""
    match kind:
        case FaultKind.DIFFERS:
            why = f"{who} has others than the first of its group"
            return f"threads disagree about the operands of a product with {name}", why, ""
        case FaultKind.UNFENCED_SUMS:
            why = f"{who} wrote sums, or a left operand, of a product with {name} before it"
            return "a product may not see its registers", why, "wgmma_fence after the writes"
        case FaultKind.HELD:
            what = f"registers that a product with {name} reads are written early"
            return what, f"by {who}", "wgmma_wait before the write"
        case _:
            hint = "wgmma_wait, or tensor_wait, before the access"
            return f"sums of a product with {name} are accessed early", f"by {who}", hint


_OF_TENSOR_MEMORY = frozenset(
    {
        FaultKind.NO_COLUMNS,
        FaultKind.COLUMNS,
        FaultKind.KEPT,
        FaultKind.STALE,
        FaultKind.UNSENT,
        FaultKind.SUMS_EARLY,
    }
)


def _tensor_memory(kind: FaultKind, place: str, name: str, who: str) -> tuple[str, str, str]:
    """Return a fault of tensor memory: its columns, or the order of its accesses."""
    match kind:
        case FaultKind.NO_COLUMNS:
            hint = "tensor_alloc by one warp, then a barrier of the block"
            return f"{name} has no columns of tensor memory", f"{who} uses it", hint
        case FaultKind.COLUMNS:
            why = f"{who} asks; a block has a power of two from 32 to 512, which it asks for once"
            return f"the columns of tensor memory at {place} are not to be had", why, ""
        case FaultKind.KEPT:
            why = f"{place} tells where they are"
            return "a block ends with columns of tensor memory", why, "tensor_free by one warp"
        case FaultKind.STALE:
            why = f"{who} uses it after it waited for others"
            return f"{name} may not be seen as others left it", why, "tensor_fence_after"
        case FaultKind.UNSENT:
            why = f"{who} used or allocated it, and another thread goes on"
            return f"an access of {name} may not be done", why, "tensor_fence_before"
        case _:
            hint = "tensor_commit, and mbarrier_wait for the phase"
            return f"{name} has sums of products that are under way", f"{who} loads them", hint


_OF_BARRIERS = frozenset(
    {
        FaultKind.DEADLOCK,
        FaultKind.EARLY,
        FaultKind.LEFT,
        FaultKind.COUNTS,
        FaultKind.TOO_MANY,
        FaultKind.ARRIVALS,
        FaultKind.AGAIN,
        FaultKind.FRESH,
        FaultKind.REPLACED,
    }
)


def _barrier(r: _Report, kind: FaultKind, who: str) -> tuple[str, str, str]:
    """Return what a fault of a barrier with phases is."""
    name = f"named barrier {r['element']}" if r["named"] else f"{r.text('subject')}[{r['element']}]"
    phase = f"phase {r['phase']} of {name}"
    there = f"{r['expected'] - r['pending']} of {r['expected']} arrivals are there"
    missing = r["missing"]
    if missing:
        there += f", {abs(missing)} bytes " + ("are missing" if missing > 0 else "too many landed")
    match kind:
        case FaultKind.DEADLOCK:
            others = f" and {r['waiting'] - 1} more wait" if r["waiting"] > 1 else " waits"
            why = f"{who}{others} for the end of {phase}: {there}"
            if r["other_site"]:
                elsewhere = f"{r.text('other_site')}[{r['other_element']}]"
                why += f"; {r.who('other', 'other_block')} waits at {elsewhere}"
            return "deadlock: no thread can go on", why, "count the arrivals and bytes of a phase"
        case FaultKind.EARLY:
            why = f"{there}, and a copy that counts there is under way"
            return f"{phase} ends too early", why, "expect the bytes of all copies of a phase"
        case FaultKind.LEFT:
            why = f"{who} began it, it counts at {name}"
            return "a block ends while a copy is under way", why, "wait for the phase"
        case FaultKind.COUNTS:
            why = f"{who} comes with another count than the {r['expected']} threads of the others"
            return f"threads disagree about {name}", why, "give all of them the same count"
        case FaultKind.AGAIN:
            why = f"{who} does it, and nothing invalidated it"
            return f"{name} is initialized again", why, "once in a block, before its loops"
        case FaultKind.FRESH:
            hint = "fence_mbarrier_init by the thread that initializes, then a barrier of the block"
            return f"{name} may not be seen by the asynchronous proxy", f"{who} uses it", hint
        case FaultKind.REPLACED:
            why = "its place was used for something else, and nothing invalidated it"
            return f"{name} is gone as its block ends", why, "keep the place of mbarriers apart"
        case FaultKind.ARRIVALS:
            return f"{phase} gets too many arrivals", f"{who} is one too many: {there}", ""
        case _:
            return "a block has more mbarriers than are simulated", f"{who} makes one more", ""


def _race(r: _Report, place: str, who: str, verb: str) -> tuple[str, str, str]:
    other, did = r.who("other", "other_block"), "wrote" if r["other_write"] else "read"
    same = r["thread"] // r.each == r["other"] // r.each
    across_blocks = r["block"] != r["other_block"] or not same
    why = f"{who} {verb} what {other} {did}, and nothing orders them"
    missing = "a barrier is missing between them"
    if across_blocks:
        missing = "only an arrival orders blocks of a launch"
    if r["block"] == r["other_block"] and not same:
        missing = "only cluster_barrier orders blocks of a cluster"
    return f"race on {place}", why, missing
