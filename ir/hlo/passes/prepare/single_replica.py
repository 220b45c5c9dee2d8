"""Removal of collective operations from a program that runs on one device."""

from __future__ import annotations

from ...nodes import HloModule, Instruction, TupleShape
from ...ops.collectives import pairs
from ...ops.registry import definition
from ...patterns import build
from ...rewrite import make, map_computations, rebuild


def single_replica(module: HloModule) -> HloModule:
    """``all-reduce(x)``  ->  ``x``, ``partition-id()``  ->  ``0``; see ``ops/collectives``"""
    return map_computations(module, lambda c: rebuild(c, _on_one_device))


def _on_one_device(i: Instruction) -> Instruction | None:
    if not definition(i.opcode).collective:
        return None
    if i.opcode in ("replica-id", "partition-id"):
        return build.scalar(0, i.array.dtype)
    if i.opcode == "collective-permute" and not pairs(i):
        zeros = (build.full(0, o.array.dtype, o.array.dims) for o in i.operands)
        return _bundle(i, tuple(zeros))
    return _bundle(i, i.operands)


def _bundle(i: Instruction, values: tuple[Instruction, ...]) -> Instruction:
    """Return one value or a tuple of them, as the collective's shape requires."""
    if not isinstance(i.shape, TupleShape) or isinstance(values[0].shape, TupleShape):
        return values[0]
    return make("tuple", TupleShape(tuple(v.shape for v in values)), values)
