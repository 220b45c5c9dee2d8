"""Building and rebuilding computations: what every graph pass is written with.

Nodes are values. ``rebuild`` hands each instruction, its operands already rewritten, to a rule and
puts the answer in its place; what did not change stays the same object, so ``is`` tells whether
anything happened. Names are made unique at the end, in order, so that results do not depend on
what ran before.
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
    """A new instruction. Without a ``name`` it gets a fresh one when its computation is built."""
    kept = MappingProxyType(dict(attrs))
    return Instruction(name or opcode, opcode, shape, tuple(operands), kept, metadata)


def constant(value: np.ndarray[Any, Any], name: str = "") -> Instruction:
    """A ``constant`` of an array's value, element type and shape; it holds the rows in order."""
    value = np.asarray(value, order="C")
    shape = Shape(from_numpy(value.dtype), tuple(value.shape))
    return make("constant", shape, name=name, literal=value)


def parameter(number: int, shape: AnyShape, name: str = "") -> Instruction:
    """Parameter ``number`` of a computation."""
    return make("parameter", shape, name=name, number=number)


def with_operands(instruction: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    """The same operation on other operands; the same object if they are the same."""
    for a, b in zip(instruction.operands, operands, strict=True):
        if a is not b:
            i = instruction
            return Instruction(i.name, i.opcode, i.shape, operands, i.attrs, i.metadata)
    return instruction


def with_attrs(instruction: Instruction, **changes: Any) -> Instruction:
    """The same operation with some attributes changed or added."""
    return replace(instruction, attrs=MappingProxyType({**instruction.attrs, **changes}))


def users(computation: Computation) -> dict[Instruction, tuple[Instruction, ...]]:
    """Who uses each instruction, each user once, in order; to be the root is not a use."""
    found: dict[Instruction, list[Instruction]] = {i: [] for i in computation.instructions}
    for i in computation.instructions:
        for operand in dict.fromkeys(i.operands):
            found[operand].append(i)
    return {i: tuple(us) for i, us in found.items()}


def operands(i: Instruction) -> tuple[Instruction, ...]:
    """Its operands."""
    return i.operands


def needs(i: Instruction) -> tuple[Instruction, ...]:
    """What its value depends on: of a tuple made on the spot only the element that is taken."""
    if i.opcode == "get-tuple-element" and i.operands[0].opcode == "tuple":
        return (i.operands[0].operands[i.attrs["index"]],)
    return i.operands


def post_order(
    roots: Iterable[Instruction],
    needs: Callable[[Instruction], tuple[Instruction, ...]] = operands,
) -> Iterator[Instruction]:
    """Everything that ``roots`` need, operands before users, each once. Depth is unlimited."""
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
    """Every instruction ``i``, operands first  ->  ``rule(i)``, or ``i`` where that is None.

    A rule may return any graph of new and old instructions. It must not change a parameter's
    number. Dead code is dropped, parameters stay. The same object comes back if nothing changed.
    """
    new: dict[Instruction, Instruction] = {}
    changed = False
    for i in computation.instructions:
        moved = with_operands(i, tuple([new[o] for o in i.operands])) if i.operands else i
        made = rule(moved) or moved
        changed = changed or made is not i
        new[i] = made
    parameters = tuple(new[p] for p in computation.parameters)
    root = new[computation.root]
    order = tuple(post_order(new.values())) if changed else computation.instructions
    live = {root, *parameters}
    for i in reversed(order):
        if i in live:
            live.update(i.operands)
    if not changed and len(live) == len(order):
        return computation
    instructions = tuple(i for i in order if i in live)
    return _settle(computation, parameters, instructions, root)


def assemble(name: str, parameters: Iterable[Instruction], root: Instruction) -> Computation:
    """A computation of what ``root`` needs, with these parameters, names made unique."""
    kept = tuple(parameters)
    order = tuple(post_order([*kept, root]))
    return _settle(Computation(name, kept, order, root), kept, order, root)


def _settle(
    old: Computation,
    parameters: tuple[Instruction, ...],
    instructions: tuple[Instruction, ...],
    root: Instruction,
) -> Computation:
    """Give every instruction a name of its own; the old computation if nothing differs."""
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
            named = replace(named, name=_fresh(i.name, taken, counts))
        used.add(named.name)
        taken.add(named.name)
        final[i] = named
    return Computation(
        old.name,
        tuple(final[p] for p in parameters),
        tuple(final[i] for i in instructions),
        final[root],
    )


def _fresh(name: str, taken: set[str], counts: dict[str, int]) -> str:
    stem, _, tail = name.rpartition(".")
    stem = stem if stem and tail.isdecimal() else name
    n = counts.get(stem, 0) + 1
    while f"{stem}.{n}" in taken:
        n += 1
    counts[stem] = n
    return f"{stem}.{n}"


def called(instruction: Instruction) -> tuple[Computation, ...]:
    """The computations that an instruction refers to, in the order of its attributes."""
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
    """The same instruction with the computations it calls replaced; itself if none is."""
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
    """Rewrite every computation by ``f``, callees first; callers are linked to the new ones.

    Computations that nothing calls any more are dropped. The same object comes back if nothing
    changed.
    """
    new: dict[Computation, Computation] = {}
    for c in module.computations:
        linked = rebuild(c, lambda i: relink(i, new)) if _calls_changed(c, new) else c
        new[c] = f(linked)
    return with_entry(module, new[module.entry])


def _calls_changed(computation: Computation, new: dict[Computation, Computation]) -> bool:
    return any(new.get(c, c) is not c for i in computation.instructions for c in called(i))


def with_entry(module: HloModule, entry: Computation) -> HloModule:
    """The module of ``entry`` and all it calls; the same object if those are its computations."""
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
                linked, name=_fresh(linked.name, {*taken, *(o.name for o in order)}, {})
            )
        taken.add(linked.name)
        new[c] = linked
    return replace(module, computations=tuple(new.values()), entry=new[entry])


def reachable(entry: Computation) -> tuple[Computation, ...]:
    """``entry`` and every computation it calls, directly or not, callees first."""
    found: dict[Computation, None] = {}

    def visit(c: Computation) -> None:
        for i in c.instructions:
            for callee in called(i):
                if callee not in found:
                    visit(callee)
        found[c] = None

    visit(entry)
    return tuple(found)
