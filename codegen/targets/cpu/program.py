"""A plan as one native function, in LLVM IR: straight calls, real loops, real branches.

``i32 nw_program(ptr params, ptr results, ptr arena, ptr constants)`` runs everything; ``params``
and ``results`` are arrays of pointers. Every piece of control flow is a function of the same
signature, at the top level ``nw_step_N``. They return 0, ``FAILED`` as soon as a library call
fails, or ``INTERRUPTED`` as soon as a poll says so.

Long-running code polls (``calls.interrupts``): loop iterations, and stretches of calls. Each
call and copy has a cost in units, and a poll comes after ``BUDGET`` of them: counted in a register
for loops, at compile time for straight-line code. A kernel that polls itself may return with its
outputs half written, so the program polls right after it.

``i32 nw_library(i64 number, ptr pointers)`` is the only call to functions of the host: it runs
library call ``number`` of the plan on operands and results at the pointers, and returns 0 if that
failed.

``nw_seal`` is data: the digest of the plan and kernels that the function was made from, for the
loader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ....ir.target import Target
from ...plan.nodes import (
    BufferSlice,
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    LibraryThunk,
    PieceStart,
    Plan,
    Thunk,
    WhileThunk,
    accesses,
    kernels,
    library_thunks,
    walk,
)
from ...plan.symbols import (
    FAILED,
    INTERRUPTED,
    LIBRARY,
    POLL,
    PROBE_BEGIN,
    PROBE_END,
    PROGRAM,
    step_symbol,
)

BUDGET = 8192  # units between two polls
UNITS = (1 << 10, 1), (16 << 10, 16)  # bytes that a call reads and writes, and what it counts
LARGE_UNITS = 128  # what it counts where there are more
COPIED = 32 << 20  # bytes of a copy that is made in one piece
_MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
_MEMORIES = "ptr %params, ptr %results, ptr %arena, ptr %constants"


def module_text(
    plan: Plan,
    seal: bytes,
    target: Target,
    failed: str = "",
    polling: Collection[str] = (),
    probed: bool = False,
) -> str:
    """Return the LLVM module of a plan, marked with a seal; it declares the kernels it calls.

    If ``probed``, every thunk tells a probe its number when it begins and ends (``probe``).
    ``failed`` is a function ``i1 ()`` that says when loops shall end, whatever their condition.
    ``polling`` are the symbols of the kernels that poll and may return early.
    """
    library = library_thunks(plan)
    numbers = {id(t): n for n, t in enumerate(library)}
    probes = {id(t): n for n, t in enumerate(walk(plan.thunks))} if probed else {}
    writer = _Writer(failed, numbers, frozenset(polling), probes)
    for number, thunk in enumerate(plan.thunks):
        if isinstance(thunk, WhileThunk | ConditionalThunk):
            writer.function(step_symbol(number), thunk)
    writer.program(plan.thunks)
    declared = [
        f"declare void @{symbol}({', '.join(['ptr'] * len(thunk.args))})"
        for symbol, thunk in sorted(kernels(plan).items())
    ]
    if failed:
        declared.append(f"declare i1 @{failed}()")
    if library:
        declared.append(f"declare i32 @{LIBRARY}(i64, ptr)")
    declared.append(f"declare i1 @{POLL}()")
    if probed:
        declared += [f"declare i64 @{PROBE_BEGIN}(i64)", f"declare void @{PROBE_END}(i64, i64)"]
    mark = "".join(f"\\{byte:02X}" for byte in seal)
    sealed = f'@nw_seal = constant [{len(seal)} x i8] c"{mark}"'
    head = [f'target triple = "{target.triple}"', "", sealed, *declared, "", _MEMCPY, ""]
    return "\n".join((*head, *writer.functions)) + "\n"


@dataclass
class _Writer:
    failed: str
    numbers: dict[int, int]  # of the library calls, by id
    polling: frozenset[str]
    probes: dict[int, int]  # numbers of the thunks, by id, if they are probed
    pointers: int = 0  # most operands and results of a library call in this function
    functions: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    count: int = 0
    may_fail: bool = False  # does something in this function branch to its end as failed?
    may_end: bool = False  # or as interrupted?
    counts: bool = False  # has it loops, which count their units?
    spent: int = 0  # units since the last poll, of what is straight

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def emit(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        name = f"%{self.fresh()}"
        self.emit(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def function(self, symbol: str, thunk: Thunk) -> None:
        """Write a function that runs one thunk."""
        self.begin()
        self.thunk(thunk)
        self.finish(symbol)

    def program(self, thunks: Sequence[Thunk]) -> None:
        """Write the function that runs it all; control flow at the top is called, not repeated."""
        self.begin()
        for number, thunk in enumerate(thunks):
            if isinstance(thunk, WhileThunk | ConditionalThunk):
                self.step(step_symbol(number))
            else:
                self.thunk(thunk)
        self.finish(PROGRAM)

    def step(self, symbol: str) -> None:
        """Call a function of this module; what it returns is returned if it is not 0."""
        name = self.fresh()
        status = self.value(f"call i32 @{symbol}({_MEMORIES})")
        good = self.value(f"icmp eq i32 {status}, 0")
        self.emit(f"br i1 {good}, label %{name}.next, label %{name}.out")
        self.label(f"{name}.out")
        self.emit(f"ret i32 {status}")
        self.label(f"{name}.next")
        self.spent = 0

    def begin(self) -> None:
        self.lines, self.pointers, self.spent = [], 0, 0
        self.may_fail = self.may_end = self.counts = False

    def finish(self, symbol: str) -> None:
        self.emit("ret i32 0")
        if self.may_fail:
            self.label("failed")
            self.emit(f"ret i32 {FAILED}")
        if self.may_end:
            self.label("interrupted")
            self.emit(f"ret i32 {INTERRUPTED}")
        head = ["entry:"]
        if self.counts:
            head += ["  %units = alloca i32", f"  store i32 {BUDGET}, ptr %units"]
        if self.pointers:
            head.append(f"  %pointers = alloca ptr, i64 {self.pointers}")
        body = "\n".join((*head, *self.lines))
        self.functions.append(f"define i32 @{symbol}({_MEMORIES}) {{\n{body}\n}}\n")

    def go_on_if(self, condition: str) -> None:
        """End the function where a library call failed."""
        name = self.fresh()
        self.emit(f"br i1 {condition}, label %{name}.next, label %failed")
        self.label(f"{name}.next")
        self.may_fail = True

    def poll(self) -> None:
        """End the function where its call was interrupted."""
        name = self.fresh()
        interrupted = self.value(f"call i1 @{POLL}()")
        self.emit(f"br i1 {interrupted}, label %interrupted, label %{name}.go")
        self.label(f"{name}.go")
        self.may_end, self.spent = True, 0

    def spend(self, units: int) -> None:
        """Count what comes next; poll before it if it is due."""
        if self.spent + units > BUDGET:
            self.poll()
        self.spent += units

    def sequence(self, thunks: Sequence[Thunk]) -> None:
        for thunk in thunks:
            self.thunk(thunk)

    def thunk(self, thunk: Thunk) -> None:
        number = self.probes.get(id(thunk))
        if number is None:
            self.plain(thunk)
            return
        began = self.value(f"call i64 @{PROBE_BEGIN}(i64 {number})")
        self.plain(thunk)
        self.emit(f"call void @{PROBE_END}(i64 {number}, i64 {began})")

    def plain(self, thunk: Thunk) -> None:
        """Write what a thunk does, without the probe."""
        if not isinstance(thunk, WhileThunk | ConditionalThunk):
            self.spend(units(thunk))
        match thunk:
            case KernelThunk(symbol=symbol, args=args):
                pointers = ", ".join(f"ptr {self.pointer(s)}" for s in args)
                self.emit(f"call void @{symbol}({pointers})")
                if symbol in self.polling:
                    self.poll()
            case CopyThunk(source=source, target=target):
                self.copy(source, target)
            case LibraryThunk():
                self.library(thunk)
            case WhileThunk():
                self.loop(thunk)
            case ConditionalThunk():
                self.branch(thunk)

    def pointer(self, s: BufferSlice) -> str:
        """Return a pointer to a slice."""
        if s.memory in ("param", "result"):
            slot = self.value(f"getelementptr ptr, ptr %{s.memory}s, i64 {s.index}")
            base = self.value(f"load ptr, ptr {slot}")
        else:
            base = f"%{s.memory}" if s.memory == "arena" else "%constants"
        if s.start is not None:
            base = self.value(f"getelementptr i8, ptr {base}, i64 {self.start(s.start)}")
        return self.value(f"getelementptr i8, ptr {base}, i64 {s.offset}") if s.offset else base

    def start(self, start: PieceStart) -> str:
        """Return the bytes before a piece of a buffer, which is clamped to lie in it."""
        width = 8 * start.place.bytes
        at = self.value(f"load i{width}, ptr {self.pointer(start.place)}, align 1")
        if width < 64:
            at = self.value(f"{'sext' if start.signed else 'zext'} i{width} {at} to i64")
        if start.signed:
            low = self.value(f"icmp slt i64 {at}, 0")
            at = self.value(f"select i1 {low}, i64 0, i64 {at}")
        high = self.value(f"icmp ugt i64 {at}, {start.last}")
        at = self.value(f"select i1 {high}, i64 {start.last}, i64 {at}")
        return self.value(f"mul i64 {at}, {start.step}")

    def copy(self, source: BufferSlice, target: BufferSlice) -> None:
        """Copy a buffer, unless a caller updates it in place (``plan.updates``)."""
        if (source.memory, target.memory) != ("param", "result"):
            self.copy_parts(source, target)
            return
        name = self.fresh()
        same = self.value(f"icmp eq ptr {self.pointer(source)}, {self.pointer(target)}")
        self.emit(f"br i1 {same}, label %{name}.done, label %{name}.copy")
        self.label(f"{name}.copy")
        self.copy_parts(source, target)
        self.emit(f"br label %{name}.done")
        self.label(f"{name}.done")

    def copy_parts(self, source: BufferSlice, target: BufferSlice) -> None:
        """Copy a buffer in parts, and poll between them."""
        for at in range(0, source.bytes, COPIED):
            size = min(COPIED, source.bytes - at)
            if at:
                self.poll()
            a, b = self.pointer(_part(source, at, size)), self.pointer(_part(target, at, size))
            self.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {b}, ptr {a}, i64 {size}, i1 false)")

    def library(self, thunk: LibraryThunk) -> None:
        slices = (*thunk.operands, *thunk.results)
        self.pointers = max(self.pointers, len(slices), 1)
        for n, s in enumerate(slices):
            slot = self.value(f"getelementptr ptr, ptr %pointers, i64 {n}")
            self.emit(f"store ptr {self.pointer(s)}, ptr {slot}")
        number = self.numbers[id(thunk)]
        done = self.value(f"call i32 @{LIBRARY}(i64 {number}, ptr %pointers)")
        self.go_on_if(self.value(f"icmp ne i32 {done}, 0"))

    def loop(self, thunk: WhileThunk) -> None:
        name = self.fresh()
        self.emit(f"br label %{name}.test")
        self.label(f"{name}.test")
        self.sequence(thunk.condition)
        flag = self.value(f"load i8, ptr {self.pointer(thunk.predicate)}")
        more = self.value(f"icmp ne i8 {flag}, 0")
        if self.failed:
            ends = self.value(f"call i1 @{self.failed}()")
            more = self.value(f"select i1 {ends}, i1 false, i1 {more}")
        self.emit(f"br i1 {more}, label %{name}.body, label %{name}.done")
        self.label(f"{name}.body")
        self.spent = 0
        self.sequence(thunk.body)
        self.next_iteration(
            min(BUDGET, sum(map(units, _straight((*thunk.condition, *thunk.body))))), name
        )
        self.label(f"{name}.done")
        self.spent = 0

    def next_iteration(self, spent: int, loop: str) -> None:
        """Branch to a loop's test after an iteration of ``spent`` units; poll if that is due."""
        self.counts = self.may_end = True
        before = self.value("load i32, ptr %units")
        left = self.value(f"sub i32 {before}, {max(1, spent)}")
        self.emit(f"store i32 {left}, ptr %units")
        due = self.value(f"icmp slt i32 {left}, 0")
        self.emit(f"br i1 {due}, label %{loop}.poll, label %{loop}.test")
        self.label(f"{loop}.poll")
        self.emit(f"store i32 {BUDGET}, ptr %units")
        interrupted = self.value(f"call i1 @{POLL}()")
        self.emit(f"br i1 {interrupted}, label %interrupted, label %{loop}.test")

    def branch(self, thunk: ConditionalThunk) -> None:
        name = self.fresh()
        width = 8 * thunk.selector.bytes
        chosen = self.value(f"load i{width}, ptr {self.pointer(thunk.selector)}")
        last = len(thunk.branches) - 1
        if width == 8:
            yes = self.value(f"icmp ne i8 {chosen}, 0")
            self.emit(f"br i1 {yes}, label %{name}.0, label %{name}.{last}")
        else:
            cases = " ".join(f"i{width} {i}, label %{name}.{i}" for i in range(last))
            self.emit(f"switch i{width} {chosen}, label %{name}.{last} [ {cases} ]")
        before, most = self.spent, 0
        for i, branch in enumerate(thunk.branches):
            self.label(f"{name}.{i}")
            self.spent = before
            self.sequence(branch)
            most = max(most, self.spent)
            self.emit(f"br label %{name}.done")
        self.label(f"{name}.done")
        self.spent = most


def units(thunk: Thunk) -> int:
    """Return what a thunk itself counts for: more where much is read and written."""
    moved = sum(s.bytes for part in accesses(thunk) for s in part)
    return next((count for most, count in UNITS if moved < most), LARGE_UNITS)


def _straight(thunks: Sequence[Thunk]) -> Iterator[Thunk]:
    """Yield the thunks that a loop iteration runs at most once; loops inside count their own."""
    for thunk in thunks:
        match thunk:
            case ConditionalThunk(branches=branches):
                for branch in branches:
                    yield from _straight(branch)
            case WhileThunk():
                pass
            case _:
                yield thunk


def _part(s: BufferSlice, at: int, size: int) -> BufferSlice:
    """Return a piece of a slice."""
    return replace(s, offset=s.offset + at, bytes=size)
