"""What runs for its effect becomes something that the result needs, so that no pass drops it."""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.effects import unneeded
from ...nodes import Computation, HloModule, Instruction, Shape, TupleShape
from ...rewrite import assemble, make, reachable, relink, with_entry, with_operands


def keep_effects(module: HloModule) -> HloModule:
    """root, effect  ->  add-dependency(root, tuple(effect)); of a tuple, its first array is tied.

    Such a dependency, on a tuple and not on a token, stays to the end: it costs nothing.
    """
    effects = unneeded(module.entry)
    if not effects:
        return module
    new: dict[Computation, Computation] = {}
    for c in reachable(module.entry):
        new[c] = _tied(c, effects.get(c, ()), new)
    return with_entry(module, new[module.entry])


def _tied(
    c: Computation, effects: Sequence[Instruction], callees: dict[Computation, Computation]
) -> Computation:
    """The computation with its callees replaced and its root tied to what has an effect."""
    new: dict[Instruction, Instruction] = {}
    for i in c.instructions:
        new[i] = relink(with_operands(i, tuple(new[o] for o in i.operands)), callees)
    root = new[c.root]
    if effects:
        acting = tuple(new[i] for i in effects)
        shape = TupleShape(tuple(i.shape for i in acting))
        root = _after(root, make("tuple", shape, acting, name="effects"))
    elif all(new[i] is i for i in c.instructions):
        return c
    return assemble(c.name, (new[p] for p in c.parameters), root)


def _after(value: Instruction, effects: Instruction) -> Instruction:
    match value.shape:
        case TupleShape(elements=elements):
            parts = [
                make("get-tuple-element", shape, (value,), index=n)
                for n, shape in enumerate(elements)
            ]
            if value.opcode == "tuple":
                parts = list(value.operands)
            for n, part in enumerate(parts):
                if isinstance(part.shape, Shape):
                    parts[n] = make("add-dependency", part.shape, (part, effects))
                    return make("tuple", value.shape, parts, name=value.name)
    return make("add-dependency", value.shape, (value, effects))
