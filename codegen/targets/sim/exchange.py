"""The two functions of a reduction across threads: combine two threads' values, hand on a result.

Both take pointers to what threads deposited: the addresses of their values, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....ir.dtypes import DType, pred, s8
from ....ir.errors import UnsupportedError
from ....ir.loop.intrinsics import WARP
from ....ir.loop.nodes import AllReduce
from ...emit.expr import Emitter
from ...emit.launches import LaunchNest
from ...emit.llvm.core import IRValue, memory_type
from ..cuda.reduce import DIRECT


def check_group(s: AllReduce, nest: LaunchNest) -> None:
    """``UnsupportedError`` for a group of threads that the hardware does not reduce across."""
    n, extent = s.threads, nest.block[0]
    whole = n % WARP == 0 if n > WARP else n & (n - 1) == 0
    if n < 1 or not whole or extent % n:
        raise UnsupportedError(
            f"a reduction across {n} of {extent} threads in {nest.symbol}",
            "it takes a power of two up to 32, or whole warps, that divides threadIdx.x",
        )


def tree_width(threads: int) -> int:
    """Return how many neighbors combine in a tree; such groups then combine in turn, as in PTX."""
    warps = threads // WARP
    tree = warps <= 1 or (warps > DIRECT and warps & (warps - 1) == 0)
    return threads if tree else WARP


def combine_text(em: Emitter, s: AllReduce) -> str:
    """``left = combined(left, right)``. ``em.function`` is open and takes ``%left, %right``."""
    function = em.function
    sides = {"left": s.left, "right": s.right}
    for side, names in sides.items():
        for n, var in enumerate(names):
            function.write(f"%{side}.{n}.p = getelementptr ptr, ptr %{side}, i64 {n}")
            function.write(f"%{side}.{n} = load ptr, ptr %{side}.{n}.p")
            em.env[var] = _load(em, f"%{side}.{n}", var.dtype)
    results = [em.value(e) for e in s.combined]
    for n, value in enumerate(results):
        kept = em.cast("zext", value, s8) if value.dtype == pred else value
        function.write(f"store {kept}, ptr %left.{n}")
    return function.text("#0", "internal ")


def _load(em: Emitter, pointer: str, dtype: DType) -> IRValue:
    if dtype != pred:
        return em.function.result(f"load {memory_type(dtype)}, ptr {pointer}", dtype)
    byte = em.function.result(f"load i8, ptr {pointer}", s8)
    return em.compare("ne", byte, em.like(0, byte))


def spread_text(name: str, s: AllReduce) -> str:
    """``to = from``."""
    lines = [f"define internal void @{name}(ptr %from, ptr %to) #0 {{", *_copies(s)]
    return "\n".join([*lines, "  ret void", "}", ""])


def _copies(s: AllReduce) -> Iterator[str]:
    for n, buffer in enumerate(s.values):
        type_ = memory_type(buffer.dtype)
        for side in ("from", "to"):
            yield f"  %{side}.{n}.p = getelementptr ptr, ptr %{side}, i64 {n}"
            yield f"  %{side}.{n} = load ptr, ptr %{side}.{n}.p"
        yield f"  %x.{n} = load {type_}, ptr %from.{n}"
        yield f"  store {type_} %x.{n}, ptr %to.{n}"
