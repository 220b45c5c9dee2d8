"""Building and rewriting computations: the functions that every graph pass is built on.

``rebuild`` passes each instruction, its operands already rewritten, to a rule and replaces it by
the result. Whatever did not change stays the same object, so ``is`` tells if anything did. Names
are made unique at the end, in order, so that results do not depend on earlier passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from ..dtypes import from_numpy
from .nodes import AnyShape, Computation, HloModule, Instruction, Metadata, Shape

Rule: TypeAlias = Callable[[Instruction], "Instruction | None"]


def make(
    opcode: str,
    shape: AnyShape,
    operands: Iterable[Instruction] = (),
    *,
    name: str = "",
    metadata: Metadata | None = None,
    **attrs: Any,
) -> Instruction:
    """Return a new instruction. Without a ``name`` it gets one when its computation is built."""
    kept = MappingProxyType(dict(attrs))
    return Instruction(name or opcode, opcode, shape, tuple(operands), kept, metadata)


def constant(value: np.ndarray[Any, Any], name: str = "") -> Instruction:
    """Return a ``constant`` of an array's value, type and shape.

    The literal is the array itself: a transposed view of weights takes no memory of its own.
    """
    value = np.asarray(value)
    shape = Shape(from_numpy(value.dtype), tuple(value.shape))
    return make("constant", shape, name=name, literal=value)


def parameter(number: int, shape: AnyShape, name: str = "") -> Instruction:
    """Return a new ``parameter`` instruction with this number."""
    return make("parameter", shape, name=name, number=number)


def with_operands(instruction: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    """Return the same operation on other operands; the same object if they are unchanged."""
    for a, b in zip(instruction.operands, operands, strict=True):
        if a is not b:
            i = instruction
            return Instruction(i.name, i.opcode, i.shape, operands, i.attrs, i.metadata)
    return instruction


def with_attrs(instruction: Instruction, **changes: Any) -> Instruction:
    """Return the same operation with some attributes changed or added."""
    return replace(instruction, attrs=MappingProxyType({**instruction.attrs, **changes}))


def users(computation: Computation) -> dict[Instruction, tuple[Instruction, ...]]:
    """Map each instruction to its users, each once, in order; being the root is not a use."""
    found: dict[Instruction, list[Instruction]] = {i: [] for i in computation.instructions}
    for i in computation.instructions:
        for operand in dict.fromkeys(i.operands):
            found[operand].append(i)
    return {i: tuple(us) for i, us in found.items()}


def operands(i: Instruction) -> tuple[Instruction, ...]:
    """Return the operands of an instruction: the default edges of ``post_order``."""
    return i.operands


def needs(i: Instruction) -> tuple[Instruction, ...]:
    """Return the instructions that a value depends on.

    These are its operands, but an element of a ``tuple`` instruction depends on that element alone.
    """
    if i.opcode == "get-tuple-element" and i.operands[0].opcode == "tuple":
        return (i.operands[0].operands[i.attrs["index"]],)
    return i.operands


def post_order(
    roots: Iterable[Instruction],
    needs: Callable[[Instruction], tuple[Instruction, ...]] = operands,
) -> Iterator[Instruction]:
    """Yield everything that ``roots`` need, operands before users, each once; not recursive."""
    seen: set[Instruction] = set()
    for root in roots:
        if root in seen:
            continue
        if seen.issuperset(root.operands):
            seen.add(root)
            yield root
            continue
        stack: list[tuple[Instruction, int]] = [(root, 0)]
        while stack:
            i, next_operand = stack.pop()
            if i in seen:
                continue
            before = needs(i)
            if next_operand < len(before):
                stack.append((i, next_operand + 1))
                stack.append((before[next_operand], 0))
                continue
            seen.add(i)
            yield i


def rebuild(computation: Computation, rule: Rule) -> Computation:
    """Replace every instruction ``i``, operands first, by ``rule(i)`` unless that is None.

    A rule may return any graph of new and old instructions, but must not change a parameter's
    number. Dead code is dropped; parameters stay. Returns the same object if nothing changed.
    """
    new: dict[Instruction, Instruction] = {}  # of those that change
    for i in computation.instructions:
        moved = i
        if new and not new.keys().isdisjoint(i.operands):
            moved = with_operands(i, tuple([new.get(o, o) for o in i.operands]))
        made = rule(moved) or moved
        if made is not i:
            new[i] = made
    parameters, root = computation.parameters, computation.root
    order = computation.instructions
    if new:
        parameters = tuple(new.get(p, p) for p in parameters)
        root = new.get(root, root)
        order = tuple(post_order([new.get(i, i) for i in order]))
    live = {root, *parameters}
    for i in reversed(order):
        if i in live:
            live.update(i.operands)
    if not new and len(live) == len(order):
        return computation
    instructions = tuple(i for i in order if i in live)
    return _with_unique_names(computation, parameters, instructions, root)


def assemble(name: str, parameters: Iterable[Instruction], root: Instruction) -> Computation:
    """Return a computation of everything that ``root`` needs, with unique names."""
    kept = tuple(parameters)
    order = tuple(post_order([*kept, root]))
    return _with_unique_names(Computation(name, kept, order, root), kept, order, root)


def _with_unique_names(
    old: Computation,
    parameters: tuple[Instruction, ...],
    instructions: tuple[Instruction, ...],
    root: Instruction,
) -> Computation:
    """Return a computation of these instructions, renamed where names clash; ``old`` itself if
    nothing differs from it."""
    if len(instructions) == len(old.instructions) and root is old.root:
        same = all(a is b for a, b in zip(instructions, old.instructions, strict=True))
        if same and len({i.name for i in instructions}) == len(instructions):
            return old
    taken = {i.name for i in instructions}
    used: set[str] = set()
    counts: dict[str, int] = {}
    final: dict[Instruction, Instruction] = {}
    for i in instructions:
        named = with_operands(i, tuple([final[o] for o in i.operands])) if i.operands else i
        if i.name in used:
            named = replace(named, name=_fresh_name(i.name, taken, counts))
        used.add(named.name)
        taken.add(named.name)
        final[i] = named
    return Computation(
        old.name,
        tuple(final[p] for p in parameters),
        tuple(final[i] for i in instructions),
        final[root],
    )


def _fresh_name(name: str, taken: set[str], counts: dict[str, int]) -> str:
    stem, _, tail = name.rpartition(".")
    stem = stem if stem and tail.isdecimal() else name
    n = counts.get(stem, 0) + 1
    while f"{stem}.{n}" in taken:
        n += 1
    counts[stem] = n
    return f"{stem}.{n}"


def called(instruction: Instruction) -> tuple[Computation, ...]:
    """Return the computations that an instruction refers to, in the order of its attributes."""
    if not instruction.attrs:
        return ()
    found: list[Computation] = []
    for value in instruction.attrs.values():
        if isinstance(value, Computation):
            found.append(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Computation):
            found.extend(value)
    return tuple(found)


def relink(instruction: Instruction, new: dict[Computation, Computation]) -> Instruction:
    """Replace the computations that an instruction calls; the same object if none is replaced."""
    if all(new.get(c, c) is c for c in called(instruction)):
        return instruction
    attrs: dict[str, Any] = {}
    for name, value in instruction.attrs.items():
        match value:
            case Computation():
                attrs[name] = new.get(value, value)
            case (Computation(), *_):
                attrs[name] = tuple(new.get(c, c) for c in value)
            case _:
                attrs[name] = value
    return replace(instruction, attrs=MappingProxyType(attrs))


def map_computations(module: HloModule, f: Callable[[Computation], Computation]) -> HloModule:
    """Rewrite every computation by ``f``, callees first, and link callers to the new ones.

    Computations that nothing calls any more are dropped. Returns the same object if nothing
    changed.
    """
    new: dict[Computation, Computation] = {}  # of those that change
    for c in module.computations:
        made = f(rebuild(c, lambda i: relink(i, new)) if _calls_changed(c, new) else c)
        if made is not c:
            new[c] = made
    return with_entry(module, new.get(module.entry, module.entry)) if new else module


def _calls_changed(computation: Computation, new: dict[Computation, Computation]) -> bool:
    if not new:
        return False
    return any(new.get(c, c) is not c for i in computation.instructions for c in called(i))


def with_entry(module: HloModule, entry: Computation) -> HloModule:
    """Return a module of ``entry`` and all it calls; the same object if that changes nothing."""
    order = reachable(entry)
    kept = set(order)
    if entry is module.entry and kept <= set(module.computations):
        order = tuple(c for c in module.computations if c in kept)
        if len(order) == len(module.computations):
            return module
    new: dict[Computation, Computation] = {}
    taken: set[str] = set()
    for c in order:
        linked = rebuild(c, lambda i: relink(i, new)) if _calls_changed(c, new) else c
        if linked.name in taken:
            linked = replace(
                linked, name=_fresh_name(linked.name, {*taken, *(o.name for o in order)}, {})
            )
        taken.add(linked.name)
        new[c] = linked
    return replace(module, computations=tuple(new.values()), entry=new[entry])


def reachable(entry: Computation) -> tuple[Computation, ...]:
    """Return ``entry`` and every computation it calls, directly or not, callees first."""
    found: dict[Computation, None] = {}

    def visit(c: Computation) -> None:
        for i in c.instructions:
            for callee in called(i):
                if callee not in found:
                    visit(callee)
        found[c] = None

    visit(entry)
    return tuple(found)
