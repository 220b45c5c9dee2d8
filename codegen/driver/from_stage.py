"""Builds that begin at a dumped stage: what ``nestwright show --stage`` prints, read back.

``STARTS`` says for each stage what becomes of its text, or why nothing can. A text is not trusted:
it is verified against the rules of its stage, its sizes are bounded, and LLVM text is compiled in a
process of its own.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from ...ir.errors import ArgumentError, LimitError, ParseError, VerifyError
from ...ir.hlo.limits import ARRAY_BYTES, exhaustion_as_limit
from ...ir.hlo.nodes import HloModule
from ...ir.hlo.passes.pipeline import require_optimized
from ...ir.hlo.rewrite import reachable
from ...ir.hlo.text import parse as parse_hlo
from ...ir.loop.nodes import Alloc, Block, Buffer, For, Func, Kind, Stmt
from ...ir.loop.notes import OPAQUE, UPDATES, WORKSPACE_BYTES
from ...ir.loop.parser import parse as parse_loops
from ...ir.loop.visit import children, walk
from ...ir.target import Target
from ...schedule.sketches.generate import default_schedule
from ..lower.invariants import SCHEDULED_IR
from ..lower.passes.weight import weight
from ..lower.passes.workspace import workspace_bytes
from ..lower.pipeline import LoweringPass
from ..plan.bundle import Bundle
from ..plan.function import CompiledFunc
from ..plan.nodes import CopyThunk, KernelThunk
from ..plan.notes import DRAWS
from ..plan.saved.seal import seal
from ..plan.signature import ArraySpec
from ..runtime.executable import Executable
from ..targets.registry import backend, lower
from .build import build
from .kernel import compile_flat
from .stages import check_stage

MAX_TEXT = 256 << 20
"""Bytes of a text."""
MAX_LINES = 100_000
"""Lines of LLVM code that a flat function may become, by estimate."""

_SCHEDULED = "--from scheduled keeps its loops"
MODULE, LOOPS, LLVM, PTX = "HLO", "a loop function", "LLVM text", "PTX"
HEADING = re.compile(r"^# \S+  [0-9a-f]{64}$", re.MULTILINE)
_SORTS = (
    (MODULE, re.compile(r"\s*HloModule\b")),
    (PTX, re.compile(r"(\s|//[^\n]*\n)*\.version\b")),
    (LOOPS, re.compile(r"(\s|#[^\n]*\n)*(@func\b|def )")),
    (LLVM, re.compile(r"(\s|;[^\n]*\n)*(target |define |declare |source_filename|@|%)")),
)


@dataclass(frozen=True, slots=True)
class StartStage:
    """A stage as a beginning: the sort of its text, or why nothing can begin with it."""

    sort: str = ""
    why: str = ""
    hint: str = ""


STARTS: Mapping[str, StartStage] = {
    "hlo": StartStage(MODULE),
    "optimized": StartStage(MODULE),
    "fused": StartStage(MODULE),
    "te": StartStage(
        why="tensor expressions are printed without the regions and guards of their blocks",
        hint="start at stage loop, which holds all of it",
    ),
    "loop": StartStage(LOOPS),
    "scheduled": StartStage(LOOPS),
    "flat": StartStage(LOOPS),
    "llvm": StartStage(LLVM),
    "ptx": StartStage(PTX),
    "asm": StartStage(
        why="it is a listing for people, and there is no assembler here",
        hint="start at stage llvm, which is what it was made of",
    ),
    "plan": StartStage(
        why="a plan names kernels and constants, and its text holds none",
        hint="start at stage optimized; a built model keeps all three",
    ),
}


def build_from(
    stage: str,
    text: str,
    target: Target | str = "cpu",
    source: str = "<text>",
) -> Executable | bytes:
    """Compile a text that is at a stage of compilation; nothing before that stage runs.

    ``hlo``, ``optimized`` and one group of ``fused`` become an executable; one function of
    ``loop``, ``scheduled`` or ``flat`` an executable of one kernel; ``llvm`` becomes object code,
    or PTX for a GPU; ``ptx`` becomes machine code, where there is an assembler.

    ``ArgumentError`` for a stage that nothing can begin with, and for text of another one;
    ``ParseError``, ``VerifyError`` and ``LimitError`` say what is wrong with the text.
    """
    machine = Target.parse(target)
    start = require_start(stage, machine)
    if not isinstance(text, str):
        raise ArgumentError(
            f"this is not stage {stage}", f"it is of type {type(text).__name__}, not text", source
        )
    plain = HEADING.sub("", text)
    found = next((sort for sort, begins in _SORTS if begins.match(plain)), "")
    group = stage == "fused" and not found
    if found not in ("", start.sort):
        at = ", ".join(s for s, row in STARTS.items() if row.sort == found)
        raise ArgumentError(
            f"this is not stage {stage}", f"it looks like {found}", source, f"--from {at}"
        )
    with exhaustion_as_limit(source):
        match stage:
            case "hlo":
                return build(parse_hlo(text, source), machine)
            case "optimized" | "fused":
                module = _one_group(text, source) if group else parse_hlo(text, source)
                return build(require_optimized(module, source), machine, passes=False)
            case "loop" | "scheduled" | "flat":
                return Executable(function_bundle(stage, text, machine, source))
            case _:
                return backend(machine).starts[stage].compile(_one(text, source), machine)


def require_start(stage: str, target: Target) -> StartStage:
    """Return the row of a stage; ``ArgumentError`` if nothing can begin with it for a target."""
    check_stage(stage, target)
    start = STARTS[stage]
    if start.why:
        raise ArgumentError(f"cannot start at stage {stage}", start.why, hint=start.hint)
    later = start.sort in (LLVM, PTX)
    if later and stage not in backend(target).starts:
        known = ", ".join(backend(target).starts)
        why = f"target {target.spec!r} does not compile it"
        raise ArgumentError(f"cannot start at stage {stage}", why, hint=f"stages: {known}")
    return start


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a dumped file. ``ParseError`` if there is none, or a very long one."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            raise ParseError("the text is too long", f"the limit is {MAX_TEXT} bytes", str(path))
        return data.decode()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ParseError("cannot read the text", why, str(path)) from None


def made_of(stage: str, target: Target) -> str:
    """Return what a text of a stage becomes, in words."""
    starts = backend(target).starts
    return starts[stage].makes if stage in starts else "a model"


def _one(text: str, source: str) -> str:
    """Return the text under its heading; ``ArgumentError`` if there are several."""
    found = HEADING.findall(text)
    if len(found) > 1:
        names = ", ".join(h.split()[1] for h in found[:8])
        raise ArgumentError(
            f"this is {len(found)} groups", names, source, "show --group NAME prints one"
        )
    return HEADING.sub("", text)


def _one_group(text: str, source: str) -> HloModule:
    """Return the module whose entry is the group that stage ``fused`` printed."""
    plain = re.sub(r"^//[^\n]*", "", text, flags=re.MULTILINE)
    heads = list(re.finditer(r"^%?([\w.\-]+) (\([^\n]*\) -> [^\n]* )?\{$", plain, re.MULTILINE))
    if not heads:
        raise ParseError("not a group", "no computation begins here", f"{source}:1:1")
    last = heads[-1]
    lines = f"HloModule {last[1]}\n{plain[: last.start()]}ENTRY {plain[last.start() :]}"
    module = parse_hlo(lines, source)
    unreachable = len(module.computations) - len(list(reachable(module.entry)))
    if unreachable:
        raise ArgumentError(
            "this is more than one group",
            "its text does not say how groups are connected",
            source,
            "cut one group out, or start at stage optimized",
        )
    return module


def function_bundle(stage: str, text: str, target: Target, source: str = "<text>") -> Bundle:
    """Return the program of one kernel that a loop function at a stage becomes."""
    func = parse_loops(_one(text, source), source)
    _require_sizes(func, source)
    symbol = f"nw_{sha256(text.encode()).hexdigest()[:24]}"
    flat = _flat(replace(func, name=symbol), stage, target, source)
    specs = tuple(ArraySpec(b.name, b.dtype, tuple(map(int, b.shape))) for b in func.params)
    compiled = replace(compile_flat(flat, target), params=specs)
    return _program(func.name, compiled, UPDATES.of(func) or (), source)


def _flat(func: Func, stage: str, target: Target, source: str) -> Func:
    """Return the flat function that a function at a stage becomes."""
    rows = backend(target).lowering.rows
    last = next(n for n in reversed(range(len(rows))) if rows[n].reaches)
    legal = rows[last].reaches if stage == "flat" else SCHEDULED_IR
    assert legal is not None
    for n, rule in enumerate(legal.rules):
        if broken := rule.broken(func):
            why = broken if n == 0 else f"{broken} is there, but {rule.says}"
            other = "scheduled" if stage == "flat" else "flat"
            hint = f"--from {other}, if that is what it is" if n else ""
            raise VerifyError(f"this function cannot be at stage {stage}", why, source, hint)
    if stage == "flat":
        return _checked(func, target, source, rows[last + 1 :])
    if stage == "loop":
        if (loop := _bound_loop(func.body)) is not None:
            why = f"loop {loop.var.name} is {loop.kind.value}"
            raise ArgumentError("this function is scheduled already", why, source, _SCHEDULED)
        func = default_schedule(func, target).func
    return lower(func, target)


def _bound_loop(s: Stmt) -> For | None:
    """Return a loop that a schedule gave its kind; those in an opaque block are the block's own."""
    match s:
        case For(kind=kind) if kind is not Kind.SERIAL:
            return s
        case Block() if OPAQUE.of(s):
            return None
    return next((loop for inner in children(s) if (loop := _bound_loop(inner))), None)


def _checked(func: Func, target: Target, source: str, rest: Sequence[LoweringPass]) -> Func:
    """Return a flat function after the passes that are left, of bounded length as code."""
    lines = weight(func.body, target)
    if lines > MAX_LINES:
        what = f"this function becomes about {lines} lines of code"
        raise LimitError(what, f"the limit is {MAX_LINES}", source, "unroll less")
    for row in rest:
        func = row.run(func, target)
    size = workspace_bytes(func.body)
    return WORKSPACE_BYTES.put(func, size) if size else WORKSPACE_BYTES.drop(func)


def _require_sizes(func: Func, source: str) -> None:
    """Refuse functions whose arrays no machine holds, and those without a result or of symbols."""
    if func.symbols:
        names = ", ".join(v.name for v in func.symbols)
        raise ArgumentError("this function has open extents", names, source, "write numbers")
    if not func.outputs:
        raise ArgumentError("this function has no outputs", "", source, "@func(outputs=N)")
    inside = (s.buffer for s in walk(func.body) if isinstance(s, Alloc))
    total = sum(map(_bytes, (*func.params, *func.allocs, *inside)))
    if total > ARRAY_BYTES:
        raise LimitError(f"the buffers take {total} bytes", f"the limit is {ARRAY_BYTES}", source)


def _bytes(buffer: Buffer) -> int:
    return math.prod(map(int, buffer.shape)) * buffer.dtype.bytes


def _program(
    name: str, compiled: CompiledFunc, updates: Sequence[tuple[int, int]], source: str
) -> Bundle:
    """Return a bundle that copies what is updated and calls the function."""
    bundle = compiled.bundle
    count = len(compiled.inputs)
    args = [a for t in bundle.plan.thunks if isinstance(t, KernelThunk) for a in t.args]
    for o, i in updates:
        if o >= compiled.outputs or i >= count or args[i].bytes != args[count + o].bytes:
            raise VerifyError(f"output {o} cannot update input {i}", "their sizes differ", source)
    copies = tuple(CopyThunk(args[i], args[count + o], name) for o, i in updates)
    plan = replace(bundle.plan, thunks=(*copies, *bundle.plan.thunks))
    target, kernels = compiled.target, bundle.kernels
    made = backend(target).finish(plan, seal(plan, kernels, bundle.buffers), target, kernels)
    return replace(
        bundle,
        name=name,
        plan=plan,
        program=made.code,
        runtime=made.runtime,
        notes={DRAWS: json.dumps([[1.0, False]] * count)},
    )
