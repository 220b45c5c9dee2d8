"""A vector's rare lanes, by code that runs only if there are any, as a function in LLVM.

LLVM inlines the function. Its slow block then lies outside of the loop's straight line, and the
values of the common case stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir.dtypes import pred
from ...emit.llvm.builder import IRBuilder
from ...emit.llvm.core import Function, IRValue, mangle
from .arith_value import ArithValue


def unless_rare(
    name: str,
    rare: ArithValue,
    common: ArithValue,
    args: Sequence[ArithValue],
    code: Callable[..., ArithValue],
) -> ArithValue:
    """Return ``common``, but ``code(*args)`` in the lanes where the predicate ``rare`` holds.

    All have the same lanes, arguments the same type. ``name`` is that of ``code``, for the symbol.
    """
    first, b = args[0].v, common.b
    symbol = f"nw_{name}_{mangle(first.dtype, first.lanes)}_{b.final_dtype or common.dtype}"
    values = [rare.v, common.v, *(x.v for x in args)]
    if symbol not in b.declarations:
        b.declarations[symbol] = _function(b, symbol, values, code)
    text = f"call {common.v.type} @{symbol}({', '.join(map(str, values))})"
    return ArithValue(b, b.pure(text, common.dtype, first.lanes, max(v.depth for v in values)))


def _function(
    b: IRBuilder, symbol: str, values: Sequence[IRValue], code: Callable[..., ArithValue]
) -> str:
    """Return the definition of function ``symbol`` of predicate, common result and arguments."""
    rare, common, *args = (IRValue(f"%given{n}", v.dtype, v.lanes) for n, v in enumerate(values))
    outer, f = b.function, Function(symbol, ", ".join(map(str, (rare, common, *args))), b.target)
    b.function, f.returns = f, common.type
    some = b.any_lane(rare) if rare.lanes else rare
    b.declare("llvm.expect.i1", "i1", ["i1", "i1"])
    taken = b.pure(f"call i1 @llvm.expect.i1({some}, i1 false)", pred, 0, 0)
    before = f.here.label
    f.open_arm()
    chosen = b.select(rare, code(*(ArithValue(b, x) for x in args)).v, common)
    arm = f.close_arm()
    f.branch(taken, arm, None)
    ends = f"[ {common.text}, %{before} ], [ {chosen.text}, %{arm.label} ]"
    f.epilogue = [f"  ret {f.result(f'phi {common.type} {ends}', common.dtype, common.lanes)}"]
    b.function = outer
    return f.text("alwaysinline nounwind", "internal ")
