"""Custom calls that have a meaning as HLO, and why the others cannot be computed.

Front-ends write some operations as custom calls: those that HLO got late (``mhlo.asin``), those
that XLA has kernels for (``TopK``), and marks of a place or a sharding, which on one device say
nothing. A function that a user registers for a name goes before its meaning here.
"""

from __future__ import annotations

import numpy as np

from ...dtypes import s32, to_numpy
from ...elementwise import TABLE
from ...errors import VerifyError
from ...library import registry
from ...library.lapack import needs_scipy
from ..library import library_call
from ..nodes import AnyShape, Instruction, Shape, TupleShape
from ..ops.registry import infer
from ..rewrite import constant, make
from .sparse_calls import CSR_PRODUCT, csr_product

MARKS = frozenset(
    {
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "LayoutConstraint",
        "annotate_device_placement",
        "MoveToHost",
        "MoveToDevice",
        "PinToDevice",
        "PinToDeviceSram",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
        "xla.sdy.PropagationBarrier",
        "xla.sdy.Sharding",
        "mhlo.copy",
    }
)
"""Targets that give their operand as it is."""

PARTS = "give the text that XLA compiled for each device: jax.jit(f).lower(..).compile().as_text()"
TRACED = (
    "give nw.jit or nw.build the function itself, or what jax.jit(f).lower(..) returns; "
    "or leave out jax.debug.print, jax.pure_callback and io_callback"
)
DIALECTS = ("mhlo.", "chlo.")
_SCIPY = "pip install scipy"


def meaning(i: Instruction) -> Instruction | None:
    """Return the same as operations of HLO on the same operands; None if there are none."""
    target = str(i.attrs.get("custom_call_target", ""))
    if registry.is_registered(target):
        return None
    if target in MARKS:
        same = len(i.operands) == 1 and _is_like(i.shape, i.operands[0].shape)
        return i.operands[0] if same else None
    if target == "AllocateBuffer" and isinstance(i.shape, Shape) and not i.operands:
        zero = constant(np.zeros((), to_numpy(i.array.dtype)))
        return make("broadcast", i.shape, (zero,), dimensions=())
    if target == "xla.sdy.ShardingGroup" and i.shape == TupleShape(()):
        return make("tuple", i.shape)
    if target in ("TopK", "mhlo.topk"):
        return _topk(i)
    if target == CSR_PRODUCT:
        return csr_product(i)
    return _elementwise(i, target)


def problem(i: Instruction) -> tuple[str, str]:
    """Why a custom call cannot be computed and what to do; two empty texts where it can."""
    target = str(i.attrs.get("custom_call_target", ""))
    if registry.knows(target) or meaning(i) is not None:
        return "", ""
    if needs_scipy(target):
        return f"`{target}` needs SciPy, which is not installed", _SCIPY
    if target in MARKS:
        return f"`{target}` would change its operand's shape", PARTS
    if "python" in target and target.endswith("callback"):
        return f"`{target}` calls a Python function, which is not part of the module", TRACED
    return f"no function computes `{target}`", registry.HINT


def _topk(i: Instruction) -> Instruction | None:
    match i.shape, [o.shape for o in i.operands]:
        case TupleShape(elements=(Shape() as values, Shape() as at)), [Shape() as x]:
            largest = library_call(i).attributes.get("largest", not _rises(i))
            fits = (
                x.dtype.kind != "complex"
                and values.dtype == x.dtype
                and values.rank == x.rank > 0
                and at.dtype == s32
            )
            if fits and values.dims[:-1] == x.dims[:-1] and values.dims[-1] <= x.dims[-1]:
                k = values.dims[-1]
                return make("topk", i.shape, i.operands, k=k, largest=largest is not False)
    return None


def _rises(i: Instruction) -> bool:
    """Does the comparator that XLA hands to a ``TopK`` put small elements first?"""
    compared = i.attrs.get("called_computations", ())
    return any(c.root.attrs.get("direction") in ("LT", "LE") for c in compared)


def _elementwise(i: Instruction, target: str) -> Instruction | None:
    """``mhlo.asin(x)``  ->  ``asin(x)``, for every operation that goes element by element."""
    for dialect in DIALECTS:
        opcode = target.removeprefix(dialect).replace("_", "-")
        if not target.startswith(dialect) or opcode not in TABLE or TABLE[opcode].index_only:
            continue
        try:
            inferred = infer(opcode, [o.shape for o in i.operands], {})
        except VerifyError:
            return None
        if _is_like(inferred, i.shape):
            return make(opcode, i.shape, i.operands, metadata=i.metadata)
    return None


def _is_like(a: AnyShape, b: AnyShape) -> bool:
    """True if two shapes are the same up to layouts and marks of bounded dimensions."""
    match a, b:
        case Shape(), Shape():
            return a.dims == b.dims and a.dtype == b.dtype
        case _:
            return a == b
