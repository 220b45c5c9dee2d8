"""Inlining of calls, fusions, maps and conditionals with a constant choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....dtypes import pred
from ...nodes import Computation, HloModule, Instruction, Shape
from ...patterns import build
from ...patterns.match import is_local, is_static, splat
from ...rewrite import make, map_computations, rebuild, with_operands


def inline_calls(module: HloModule) -> HloModule:
    """``call(x), to_apply=f``  ->  ``f(x)``; also for fusion, map and conditional"""
    return map_computations(module, lambda c: rebuild(c, _inline))


def inline(computation: Computation, arguments: Sequence[Instruction]) -> Instruction:
    """Return the root of ``computation`` with ``arguments`` in place of its parameters."""
    new: dict[Instruction, Instruction] = dict(zip(computation.parameters, arguments, strict=True))
    for i in computation.instructions:
        if i not in new:
            new[i] = with_operands(i, tuple(new[o] for o in i.operands)) if i.operands else i
    return new[computation.root]


def _inline(i: Instruction) -> Instruction | None:
    match i.opcode:
        case "call":
            return inline(i.attrs["to_apply"], i.operands)
        case "fusion":
            return inline(i.attrs["calls"], i.operands)
        case "map":
            return _inline_map(i)
        case "conditional":
            return _inline_conditional(i)
        case _:
            return None


def _inline_map(i: Instruction) -> Instruction | None:
    """map(x), to_apply=f  ->  f on whole arrays, if all its instructions are element-wise"""
    body: Computation = i.attrs["to_apply"]
    dims = i.array.dims
    if not all(is_static(b) and b.array.rank == 0 for b in body.instructions):
        return None
    new: dict[Instruction, Instruction] = dict(zip(body.parameters, i.operands, strict=True))
    for b in body.instructions:
        if b in new:
            continue
        if b.opcode == "constant":
            new[b] = build.broadcast(b, (), dims)
        elif is_local(b) and b.operands:
            shape = Shape(b.array.dtype, dims)
            new[b] = make(b.opcode, shape, tuple(new[o] for o in b.operands), **b.attrs)
        else:
            return None
    return new[body.root]


def _inline_conditional(i: Instruction) -> Instruction | None:
    """conditional(constant, a, b)  ->  the branch taken, inlined"""
    index, *arguments = i.operands
    value: np.ndarray[Any, Any] | None = splat(index) if is_static(index) else None
    if value is None:
        return None
    named = ("true_computation", "false_computation")
    listed = "branch_computations" in i.attrs
    branches = i.attrs["branch_computations"] if listed else [i.attrs[n] for n in named]
    number = int(not value) if index.array.dtype == pred else int(value)
    taken = number if 0 <= number < len(branches) else len(branches) - 1
    return inline(branches[taken], (arguments[taken],))
