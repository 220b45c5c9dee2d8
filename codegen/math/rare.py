"""A vector's rare lanes, by code that runs only if there are any, as a function in LLVM.

LLVM inlines the function. Its slow block then lies outside of the loop's straight line, and the
values of the common case stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.dtypes import pred
from ..emit.llvm.builder import IRBuilder
from ..emit.llvm.core import Function, IRValue, mangle
from .arith_value import ArithValue


def unless_rare(
    name: str,
    rare: ArithValue,
    common: ArithValue,
    x: ArithValue,
    code: Callable[[ArithValue], ArithValue],
) -> ArithValue:
    """Return ``common``, but ``code(x)`` in the lanes where the predicate ``rare`` holds.

    All have the same lanes. ``name`` is that of ``code``, for the symbol.
    """
    b, final = x.b, x.b.final_dtype or common.dtype
    symbol = f"nw_{name}_{mangle(x.dtype, x.v.lanes)}_{final}"
    if symbol not in b.declarations:
        b.declarations[symbol] = _function(b, symbol, common.v, x.v, code)
    depth = max(v.depth for v in (rare.v, common.v, x.v))
    text = f"call {common.v.type} @{symbol}({rare.v}, {common.v}, {x.v})"
    return ArithValue(b, b.pure(text, common.dtype, x.v.lanes, depth))


def _function(
    b: IRBuilder, symbol: str, common: IRValue, x: IRValue, code: Callable[[ArithValue], ArithValue]
) -> str:
    """Return the definition of the function ``symbol`` of the predicate, ``common`` and ``x``."""
    rare, common, x = (
        IRValue(f"%{name}", dtype, x.lanes)
        for name, dtype in (("rare", pred), ("common", common.dtype), ("x", x.dtype))
    )
    outer, f = b.function, Function(symbol, f"{rare}, {common}, {x}", b.target)
    b.function, f.returns = f, common.type
    some = b.any_lane(rare) if x.lanes else rare
    b.declare("llvm.expect.i1", "i1", ["i1", "i1"])
    taken = b.pure(f"call i1 @llvm.expect.i1({some}, i1 false)", pred, 0, 0)
    before = f.here.label
    f.open_arm()
    chosen = b.select(rare, code(ArithValue(b, x)).v, common)
    arm = f.close_arm()
    f.branch(taken, arm, None)
    ends = f"[ {common.text}, %{before} ], [ {chosen.text}, %{arm.label} ]"
    f.epilogue = [f"  ret {f.result(f'phi {common.type} {ends}', common.dtype, x.lanes)}"]
    b.function = outer
    return f.text("alwaysinline nounwind", "internal ")
