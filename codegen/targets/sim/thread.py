"""The function of one simulated thread under construction, with its pending warp operations.

Consecutive warp operations need only one rendezvous of the lanes: they are collected until anything
else has an effect, reads memory, or ends the region.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ....ir.dtypes import DType, s64
from ....ir.loop.nodes import Buffer
from ....ir.target import Target
from ...emit.llvm.core import CodeRegion, Function, IRValue
from ...runtime.sim.structs import STOPPED
from ..cpu.toolchain import coroutine_end

LARGE = 16 << 10  # bytes of a thread's own buffer that no longer stands on a stack
_BYTES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}


class ThreadFunction(Function):
    """A function whose pending warp operations ``meet`` emits before anything else happens.

    ``check_alignment`` checks the alignment of the access that was just announced. The host itself
    is promised no alignment: a broken promise is to be reported, not to crash the process.
    """

    poll = STOPPED
    leave = "quit"

    def __init__(self, name: str, target: Target, meet: Callable[[], None]) -> None:
        super().__init__(name, "ptr %sim", target)
        self.returns = "ptr"
        self.meet = meet
        self.check_alignment: Callable[[int, int], None] | None = None

    def raw(self, line: str, depth: int = -1) -> None:
        """Write a line that does not depend on what is pending."""
        self.regions[depth].lines.append(f"  {line}")

    def block(self, name: str, depth: int = -1) -> None:
        """Begin a basic block at the end of a region."""
        self.regions[depth].lines.append(f"{name}:")
        self.regions[depth].label = name

    def alloca(self, type_: str, align: int) -> IRValue:
        """Return a slot of the frame, or memory from the scratch where it is large.

        LLVM keeps a slot across suspensions where one lies between two uses of it, and overlooks
        that a store in a loop may meet it on the way round. A store before all of them tells it.
        """
        size = _bytes(type_)
        if size <= LARGE:
            slot = super().alloca(type_, align)
            self.prologue.append(f"  store i8 0, ptr {slot.text}")
            return slot
        name = f"%{self.name_for('own')}"
        self.prologue.append(f"  {name} = call ptr @nw_scratch(i64 {size})")
        return IRValue(name, s64)

    def read(
        self,
        text: str,
        dtype: DType,
        lanes: int,
        buffer: Buffer,
        depth: int,
        before: Callable[[int], None] = lambda depth: None,
    ) -> IRValue:
        """Write a load, with the check of its alignment; see ``Function.read``."""
        self.meet()
        promised = _promised(text)

        def check(region: int) -> None:
            self.check_alignment = None
            before(region)
            self._align(promised if lanes else 0, region)

        return super().read(_plain(text, promised), dtype, lanes, buffer, depth, check)

    def write(self, line: str, depth: int = -1) -> None:
        """Write a store, with the check of its alignment; see ``Function.write``."""
        self.meet()
        promised = _promised(line) if line.startswith("store <") else 0
        self._align(promised, depth)
        super().write(_plain(line, promised), depth)

    def _align(self, promised: int, depth: int) -> None:
        """Check what a vector access promises of its address."""
        check, self.check_alignment = self.check_alignment, None
        if promised > 1 and check is not None:
            check(promised, depth)

    def result(self, text: str, dtype: DType, lanes: int = 0) -> IRValue:
        """Write an instruction with effects, behind what is pending."""
        self.meet()
        return super().result(text, dtype, lanes)

    def open_loop(self, stored: Iterable[Buffer], sure: bool) -> tuple[IRValue, str]:
        """Begin a loop, behind what is pending."""
        self.meet()
        return super().open_loop(stored, sure)

    def close_loop(
        self, name: str, begin: str, end: str, step: int, bits: int = 64, every: int = 0
    ) -> None:
        """End a loop's body, behind what is pending in it."""
        self.meet()
        super().close_loop(name, begin, end, step, bits, every)

    def open_arm(self) -> None:
        """Begin an arm of a branch, behind what is pending."""
        self.meet()
        super().open_arm()

    def close_arm(self) -> CodeRegion:
        """End an arm, behind what is pending in it."""
        self.meet()
        return super().close_arm()


_ALIGN = re.compile(r"(?<=, align )\d+$")


def _promised(text: str) -> int:
    """Return the alignment that a load or store states."""
    found = _ALIGN.search(text)
    return int(found[0]) if found else 0


def _plain(text: str, promised: int) -> str:
    return _ALIGN.sub("1", text) if promised > 1 else text


def _bytes(type_: str) -> int:
    """Bytes of an array type such as ``[64 x float]``; of any other, 0: it is small."""
    if not type_.startswith("["):
        return 0
    count, _, element = type_[1:-1].partition(" x ")
    return int(count) * _BYTES[element]


COROUTINE = [
    "  %id = call token @llvm.coro.id(i32 0, ptr null, ptr null, ptr null)",
    "  %size = call i64 @llvm.coro.size.i64()",
    "  %memory = call ptr @nw_sim_frame(i64 %size)",
    "  %handle = call ptr @llvm.coro.begin(token %id, ptr %memory)",
]
RETURN = ["  br label %quit", "quit:", "  ret ptr null"]


def end_of_coroutine() -> list[str]:
    """Return the lines that end a thread that suspends."""
    kind = coroutine_end()
    result = "" if kind == "void" else "%ended = "
    return [
        "  br label %quit",
        "quit:",
        "  call void @nw_sim_wait(i32 0)",
        "  %final = call i8 @llvm.coro.suspend(token none, i1 true)",
        "  switch i8 %final, label %suspended [i8 0, label %never i8 1, label %gone]",
        "never:",
        "  unreachable",
        "gone:",
        "  br label %suspended",
        "suspended:",
        f"  {result}call {kind} @llvm.coro.end(ptr %handle, i1 false, token none)",
        "  ret ptr %handle",
    ]
