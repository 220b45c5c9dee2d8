"""Find what cannot be compiled before anything else is done: one error that lists all of it.

Only what the result needs counts, and what has an effect of its own; a dead instruction stops
nobody. Why an operation, or one instruction of it, is not computed is part of its definition
(``ops``); halves of operations are joined by ``asynchronous``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...errors import UnsupportedError
from ...findings import Finding
from ..device_groups import Devices
from ..nodes import AnyShape, Computation, HloModule, Instruction, Raw, TokenShape, TupleShape
from ..ops import collectives
from ..ops.definition import BEFORE
from ..ops.registry import definition
from ..rewrite import called, needs, post_order, users
from ..sources import Sources
from . import asynchronous, custom_calls
from .effects import unneeded

NAMED = 4  # instructions of one kind that the text names
KINDS = 24  # kinds that it tells apart

ELIDED = (
    "print the module with large constants: as_text('hlo') of JAX 0.10 does, XLA's dump with "
    "--xla_dump_large_constants, or print_large_constants=True in HloPrintOptions"
)
_PRIVATE = (
    "__onednn$",
    "__cublas$",
    "__cudnn$",
    "__cub$",
    "__triton",
    "__gpu$",
    "__ynn",
    "__cusolver$",
    "__cusparse$",
    "__hipblas",
    "__miopen",
    "triton_kernel_call",
)


def require_supported(module: HloModule) -> None:
    """``UnsupportedError`` that lists every instruction of a verified module without a meaning."""
    found = list(findings(module.entry, collectives.devices(module), Sources(module)))
    if found:
        raise refusal(found, module.name)


def findings(
    entry: Computation, devices: Devices | None = None, sources: Sources | None = None
) -> Iterator[Finding]:
    """Every instruction that ``entry`` needs and that cannot be computed, callees first."""
    known = devices or Devices()
    for computation, live in _needed(entry):
        used = users(computation)
        for i in live:
            reason, hint = _problem(i, tuple(u for u in used[i] if u in live), known)
            if reason:
                source = sources.of(i) if sources is not None else ""
                yield Finding(i.opcode, i.name, computation.name, reason, hint, source)


def refusal(found: Sequence[Finding], name: str) -> UnsupportedError:
    """Return one error for everything found in model ``name``: equal reasons counted together."""
    if len(found) == 1:
        (one,) = found
        return UnsupportedError(f"cannot compile {one}", one.reason, name, one.hint, (one,))
    rows: list[str] = []
    kinds: dict[tuple[str, str, str], list[Finding]] = {}
    for f in found:
        kinds.setdefault((f.opcode, f.reason, f.hint), []).append(f)
    for (opcode, reason, hint), same in list(kinds.items())[:KINDS]:
        rows.append(f"  {len(same)} x {opcode}: {reason}")
        rows += [f"    {str(f).removeprefix(opcode + ' ')}" for f in same[:NAMED]]
        rows += [f"    and {len(same) - NAMED} more"] * (len(same) > NAMED)
        rows += [f"    hint: {hint}"] * bool(hint)
    if len(kinds) > KINDS:
        rest = sum(map(len, list(kinds.values())[KINDS:]))
        rows.append(f"  and {rest} instructions of {len(kinds) - KINDS} other kinds")
    what = f"{len(found)} instructions cannot be compiled"
    return UnsupportedError(what, "\n" + "\n".join(rows), name, "", tuple(found))


def together(errors: Iterable[UnsupportedError], name: str) -> UnsupportedError:
    """One error for several, each of which has findings of its own."""
    known = list(errors)
    if len(known) == 1:
        return replace(known[0], where=known[0].where or name)
    found = [f for e in known for f in e.findings]
    return refusal(list(dict.fromkeys(found)), name)


def _needed(entry: Computation) -> Iterator[tuple[Computation, dict[Instruction, None]]]:
    """The computations that run, callees first, each with the instructions that count."""
    found: dict[Computation, dict[Instruction, None]] = {}
    effects = unneeded(entry)

    def visit(c: Computation) -> Iterator[tuple[Computation, dict[Instruction, None]]]:
        roots = [c.root, *effects.get(c, ()), *c.parameters]
        found[c] = live = dict.fromkeys(post_order(roots, needs))
        for i in live:
            for callee in called(i):
                if callee not in found:
                    yield from visit(callee)
        yield c, live

    return visit(entry)


def _problem(i: Instruction, used: tuple[Instruction, ...], devices: Devices) -> tuple[str, str]:
    """Why an instruction cannot be computed and what to do; nothing where it can."""
    _, stage = asynchronous.stage(i.opcode)
    if i.opcode == "constant" and _is_elided(i.attrs["literal"]):
        return "its value was left out of the text as `{...}`", ELIDED
    if _holds_no_array(i.shape):
        return "it holds a buffer or something opaque, not an array", BEFORE
    op = definition(i.opcode)
    if op.collective:
        return collectives.problem(i, devices)
    if i.opcode == "custom-call":
        return _custom_call(i)
    if stage:
        if reason := asynchronous.problem(i, used):
            return reason, BEFORE
        start = asynchronous.start_of(i) if stage == "done" else None
        return _problem(asynchronous.whole(i, start), (), devices) if start else ("", "")
    if op.refused is not None:
        return op.refused
    return ("", "") if op.problem is None else op.problem(i)


def _custom_call(i: Instruction) -> tuple[str, str]:
    target = str(i.attrs.get("custom_call_target", ""))
    reason, hint = custom_calls.problem(i)
    if reason and target.startswith(_PRIVATE):
        return f"`{target}` is private to the compiler that made it", BEFORE
    return reason, hint


def _is_elided(literal: object) -> bool:
    if isinstance(literal, tuple):
        return any(map(_is_elided, literal))
    return isinstance(literal, Raw)


def _holds_no_array(shape: AnyShape) -> bool:
    match shape:
        case TupleShape(elements=elements):
            return any(map(_holds_no_array, elements))
        case TokenShape(text=text):
            return text != "token[]"
        case _:
            return False
