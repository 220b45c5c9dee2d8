"""The stages between graph passes: what may not occur from the pass on that reaches each.

A stage keeps the rules of those before it. ``NESTWRIGHT_VERIFY=1`` in the environment checks them
after every pass that changed a module, as the tests do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary

from ...errors import VerifyError
from ...formats import is_narrow
from ...passes import Invariant, LegalIR
from ..analysis.asynchronous import stage
from ..analysis.verify import verify
from ..layouts import HEADER
from ..nodes import AnyShape, Computation, HloModule, Instruction, Shape, TupleShape
from ..ops.collectives import by_device, devices, exchanges
from ..ops.registry import definition
from ..patterns.match import all_static
from ..rewrite import called, post_order, reachable
from .canonical.convolution import labels
from .canonical.dot import is_canonical

WRITTEN_OUT = (
    "batch-norm-training",
    "batch-norm-inference",
    "batch-norm-grad",
    "stochastic-convert",
    "rng",
    "rng-bit-generator",
    "ragged-dot",
    "scan",
)
"""Operations that passes write as others."""

BITS = frozenset({"convert", "bitcast-convert", "select", "compare", "clamp"})
"""Element-wise operations that narrow types keep, as they need no arithmetic."""


def _says(rule: str, breaks: Callable[[Instruction], bool]) -> Invariant[HloModule]:
    """Return the rule that no instruction breaks."""

    def broken(module: HloModule) -> str:
        found = (f"{i!r} in {c.name}" for c in _here(module) for i in c.instructions if breaks(i))
        return next(found, "")

    def since(module: HloModule, before: HloModule) -> str:
        fresh = _instructions(module) - _instructions(before)
        return broken(module) if any(map(breaks, fresh)) else ""

    return Invariant(rule, broken, since)


def _here(module: HloModule) -> Iterator[Computation]:
    """Yield the computations other than those that library calls hand on."""
    handed = {
        inner
        for c in module.computations
        for i in c.instructions
        if definition(i.opcode).is_library
        for callee in called(i)
        for inner in reachable(callee)
    }
    return (c for c in module.computations if c not in handed)


_KNOWN: WeakKeyDictionary[HloModule, frozenset[Instruction]] = WeakKeyDictionary()


def _instructions(module: HloModule) -> frozenset[Instruction]:
    """Return those of the computations in ``_here``, which are found once for all rules."""
    found = _KNOWN.get(module)
    if found is None:
        found = _KNOWN[module] = frozenset(i for c in _here(module) for i in c.instructions)
    return found


def _malformed(module: HloModule, before: HloModule | None = None) -> str:
    try:
        verify(module, before)
    except VerifyError as error:
        return str(error)
    return ""


def _arrays(shape: AnyShape) -> Iterator[Shape]:
    match shape:
        case Shape():
            yield shape
        case TupleShape(elements=elements):
            for e in elements:
                yield from _arrays(e)
        case _:
            pass


def _with_layout(module: HloModule) -> str:
    return HEADER if HEADER in module.attrs else _LAYOUT.broken(module)


_LAYOUT = _says("", lambda i: any(s.layout is not None or s.tiling for s in _arrays(i.shape)))


def _bounded(module: HloModule) -> str:
    """Bounded dimensions are those of the entry's parameters and of what makes its results."""
    for c in module.computations:
        free = set(c.parameters) if c is module.entry else set()
        for i in c.instructions:
            marked = any(any(s.dynamic) for s in _arrays(i.shape))
            if marked and i not in free and not _is_boundary(i, c is module.entry):
                return f"{i!r} in {c.name}"
    return ""


def _is_boundary(i: Instruction, entry: bool) -> bool:
    return entry and (i.opcode == "set-dimension-size" or definition(i.opcode).structure)


def _not_flat(module: HloModule) -> str:
    known = devices(module)
    for i in (i for c in module.computations for i in c.instructions):
        if definition(i.opcode).collective:
            numbers = not i.operands and known.replicas == 1
            if not exchanges(i, known) or not (
                numbers or by_device(i, known).items() <= i.attrs.items()
            ):
                return repr(i)
    return ""


def _complex_work(i: Instruction) -> bool:
    """True if an element-wise operation or a movement of data takes or makes complex values."""
    own = definition(i.opcode)
    if own.is_library or own.structure or i.opcode in ("complex", "real", "imag", "constant"):
        return False
    shapes = (s for x in (i, *i.operands) for s in _arrays(x.shape))
    return own.pointwise and any(s.dtype.kind == "complex" for s in shapes)


def _narrow_arithmetic(i: Instruction) -> bool:
    if not definition(i.opcode).arithmetic or i.opcode in BITS:
        return False
    return any(is_narrow(s.dtype) for x in (i, *i.operands) for s in _arrays(x.shape))


def _convolution(i: Instruction) -> bool:
    if i.opcode != "convolution" or not all_static(i):
        return False
    return bool(i.attrs["dim_labels"] != labels(len(i.attrs.get("window", ()))))


def _dot(i: Instruction) -> bool:
    if i.opcode != "dot" or not all_static(i) or is_canonical(i):
        return False
    return all(0 not in o.array.dims for o in i.operands)  # sums of nothing stay as they are


def _dead(module: HloModule) -> str:
    for c in module.computations:
        needed = set(post_order([*c.parameters, c.root]))
        if dead := [i for i in c.instructions if i not in needed]:
            return f"{dead[0]!r} in {c.name}"
    return ""


def _implicit_tuple(module: HloModule) -> str:
    return next(filter(None, map(_used_whole, module.computations)), "")


def _used_whole(c: Computation) -> str:
    """Return the first use of a computed tuple other than taking an element of it."""
    for i in c.instructions:
        if i.opcode != "get-tuple-element":
            for o in i.operands:
                if isinstance(o.shape, TupleShape) and o.shape.elements and o.opcode != "tuple":
                    return f"{o!r}, used whole by {i!r} in {c.name},"
    return ""


WRITTEN: LegalIR[HloModule] = LegalIR(
    "written", (Invariant("a module is well formed", _malformed, _malformed),)
)
"""A module as a front-end made it."""
WHOLE = WRITTEN.then(
    "whole", _says("no operation is cut in two", lambda i: bool(stage(i.opcode)[1]))
)
PLAIN = WHOLE.then("plain", Invariant("no shape has a layout", _with_layout))
INLINED = PLAIN.then(
    "inlined", _says("there are no calls and no fusions", lambda i: i.opcode in ("call", "fusion"))
)
FLAT = INLINED.then(
    "flat", Invariant("collectives are between devices by number, each over several", _not_flat)
)
PADDED = FLAT.then(
    "padded", Invariant("only the entry's parameters and results are bounded", _bounded)
)
EXPANDED = PADDED.then(
    "expanded", _says(f"there is no {', '.join(WRITTEN_OUT)}", lambda i: i.opcode in WRITTEN_OUT)
)
REAL = EXPANDED.then("real", _says("no arithmetic on complex values", _complex_work))
WIDENED = REAL.then(
    "widened", _says("no arithmetic on floats of 8 and integers of 4 bits", _narrow_arithmetic)
)
CANONICAL = WIDENED.then(
    "canonical",
    _says("convolutions are b01f_01io->b01f", _convolution),
    _says("dots are [m, k] x [k, n] or [b, m, k] x [b, k, n]", _dot),
)
BY_ELEMENT = CANONICAL.then(
    "by element", Invariant("computed tuples are used by element", _implicit_tuple)
)
OPTIMIZED = BY_ELEMENT.then("optimized", Invariant("every instruction is needed", _dead))

STAGES = (
    *(WRITTEN, WHOLE, PLAIN, INLINED, FLAT, PADDED, EXPANDED, REAL, WIDENED, CANONICAL),
    *(BY_ELEMENT, OPTIMIZED),
)
"""In order; the last is what FuseOps takes."""
