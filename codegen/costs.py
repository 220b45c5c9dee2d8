"""The numbers of ``cost_analysis``: counted on the optimized module, the same on any machine.

Conventions of XLA's HloCostAnalysis: a multiply-add counts two, an element-wise operation one per
element, transcendental functions are counted apart; called computations count once per call, a
reduction's once per element. ``bytes accessed`` is what the plan's kernels and copies read and
write, so what fusion keeps in registers does not count.
"""

from __future__ import annotations

import math

from ..ir.elementwise import TABLE
from ..ir.hlo.nodes import Computation, HloModule, Instruction, Shape
from .plan import Plan, accesses, walk
from .sequence import called


def costs(module: HloModule, plan: Plan) -> dict[str, float]:
    """``flops``, ``transcendentals`` and ``bytes accessed`` of one run; loops count one turn."""
    flops, transcendentals = _count(module.entry, {})
    moved = sum(s.bytes for t in walk(plan.thunks) for part in accesses(t) for s in part)
    return {"flops": flops, "transcendentals": transcendentals, "bytes accessed": float(moved)}


def _count(
    computation: Computation, known: dict[Computation, tuple[float, float]]
) -> tuple[float, float]:
    """Of a run of a computation; ``known`` has those that were counted already."""
    if computation not in known:
        flops = transcendentals = 0.0
        for i in computation.instructions:
            inner = [_count(c, known) for c in called(i)]
            flops += sum(f for f, _ in inner) + _flops(i)
            transcendentals += sum(t for _, t in inner) + _transcendentals(i)
        known[computation] = flops, transcendentals
    return known[computation]


def _transcendentals(i: Instruction) -> float:
    op = TABLE.get(i.opcode)
    return _elements(i) if op is not None and op.transcendental else 0.0


def _flops(i: Instruction) -> float:
    match i.opcode:
        case "dot":
            lhs = i.operands[0].array.dims
            terms = math.prod(lhs[d] for d in i.attrs["lhs_contracting_dims"])
            return 2.0 * _elements(i) * float(terms)
        case "convolution":
            kernel, labels = i.operands[1].array, i.attrs["dim_labels"]
            terms = kernel.size // max(1, kernel.dims[labels.rhs_output])
            return 2.0 * _elements(i) * float(terms)
        case "reduce":
            each = sum(_count(i.attrs["to_apply"], {}))
            return each * max(0.0, _elements(i.operands[0]) - _elements(i))
        case "reduce-window":
            more = math.prod(w.size for w in i.attrs["window"]) - 1
            return sum(_count(i.attrs["to_apply"], {})) * _elements(i) * float(max(0, more))
        case "fft":
            levels = math.prod(max(1, n).bit_length() - 1 for n in i.attrs["fft_length"])
            return 8.0 * _elements(i.operands[0]) * float(levels)
        case "cholesky":
            return _elements(i) * float(i.array.dims[-1]) / 3
        case "triangular-solve":
            return 2.0 * _elements(i) * float(i.operands[0].array.dims[-1])
        case opcode if opcode in TABLE and not TABLE[opcode].transcendental:
            return _elements(i)
        case _:
            return 0.0


def _elements(i: Instruction) -> float:
    return float(i.shape.size) if isinstance(i.shape, Shape) else 0.0
