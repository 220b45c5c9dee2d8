"""Instructions with side effects become dependencies of the result, so that no pass drops them."""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.effects import unneeded
from ...nodes import Computation, HloModule, Instruction, Shape, TupleShape
from ...rewrite import assemble, make, reachable, relink, with_entry, with_operands


def keep_effects(module: HloModule) -> HloModule:
    """``root``, ``effect``  ->  ``add-dependency(root, tuple(effect))``

    If the root is a tuple, its first array gets the dependency. Being on a tuple and not on a
    token, it survives all passes; it costs nothing.
    """
    effects = unneeded(module.entry)
    if not effects:
        return module
    new: dict[Computation, Computation] = {}
    for c in reachable(module.entry):
        new[c] = _with_effects(c, effects.get(c, ()), new)
    return with_entry(module, new[module.entry])


def _with_effects(
    c: Computation, effects: Sequence[Instruction], callees: dict[Computation, Computation]
) -> Computation:
    """Replace a computation's callees, and make its root depend on instructions with effects."""
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
