"""Find the inputs that a kernel's outputs may overwrite, and the copies that can be left to its
caller.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...ir.hlo.nodes import Computation, Instruction, Shape
from ...ir.loop.nodes import Block, Buffer, Func, Seq, Stmt
from ...ir.loop.notes import COPY, UPDATES
from ...ir.loop.visit import seq, walk
from ...te.from_hlo.scalars import is_elementwise
from .code.kernel import Sharing


def in_place_inputs(computation: Computation) -> tuple[int, ...]:
    """Return the parameters, by number, that the result may overwrite.

    Their elements are needed only for the result's element at the same index.

    ``out[i] = f(p[i], q[0])``  ->  p
    """
    root = computation.root
    if not isinstance(root.shape, Shape):
        return ()
    dims = root.array.dims
    unsafe: set[Instruction] = set()
    for i in reversed(computation.instructions):
        aligned = isinstance(i.shape, Shape) and i.shape.dims == dims and is_elementwise(i)
        if i in unsafe or not (aligned or i.opcode in ("parameter", "constant")):
            unsafe.update(i.operands)
    return tuple(
        n
        for n, p in enumerate(computation.parameters)
        if p not in unsafe and isinstance(p.shape, Shape) and p.shape.dims == dims and p is not root
    )


def without_copies(func: Func) -> tuple[Func, Sharing]:
    """Rewrite ``out = p; out[i] = u``  ->  ``out[i] = u``, for outputs noted as updates of an
    input. The note stays: it is how the function's text tells of the copy.
    """
    inputs = len(func.params) - func.outputs
    updates = UPDATES.of(func) or ()
    if not updates or not isinstance(func.body, Seq):
        return func, Sharing()
    started = {func.params[inputs + o] for o, _ in updates}
    kept = [s for s in func.body.stmts if not _is_copy(s, started)]
    if len(kept) != len(func.body.stmts) - len(updates):
        return func, Sharing()
    return replace(func, body=seq(*kept)), Sharing(updates=updates)


def _is_copy(s: Stmt, targets: Collection[Buffer]) -> bool:
    inside = [b for b in walk(s) if isinstance(b, Block)]
    if len(inside) != 1 or not COPY.of(inside[0]):
        return False
    return inside[0].writes[0].buffer in targets
