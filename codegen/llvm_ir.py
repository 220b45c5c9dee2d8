"""One kernel as an LLVM module: ``void name(ptr, ..., [ptr workspace])``.

Parameters are the function's buffers in order. A function that needs memory for intermediate
buffers outside of parallel loops (``func.notes["workspace_bytes"]``) takes a pointer to it last.
Buffers do not overlap, unless ``func.notes["in_place"]`` says that an output may be an input.
For a GPU there is one kernel per launch (see ``llvm_ir_device``), all with these parameters.
"""

from __future__ import annotations

from ..ir.dtypes import index
from ..ir.errors import UnsupportedError
from ..ir.loop.nodes import Func
from ..ir.target import Target
from .llvm_ir_core import Function, Value
from .llvm_ir_device import Device, nests
from .llvm_ir_expr import Emitter
from .llvm_ir_nvptx import Nvptx
from .llvm_ir_opaque import numbered
from .llvm_ir_stmt import emit_nest, emit_stmt
from .lower.workspace import workspace_bytes
from .polls import poll_points
from .sim.device import Simulator
from .sim.roll import roll


def emit(func: Func, target: Target) -> str:
    """The text of the LLVM module of a flat function.

    ``UnsupportedError`` for element types and operations that there is no code for.
    """
    if func.symbols:
        names = ", ".join(v.name for v in func.symbols)
        raise UnsupportedError(f"function {func.name} over symbols {names}", "bind them first")
    em = Emitter(target)
    if target.kind == "cuda-sim":
        func = roll(func)
    em.numbered = numbered(func.body)
    if target.kind != "cuda":
        em.polls = poll_points(func, target)
    device = _device(em, func)
    if device is None:
        return _cpu(em, func)
    em.device, em.libm, em.has_fma = device, False, True
    launches = nests(func)
    for nest in launches:
        emit_nest(em, device, nest)
    return device.module(launches)


def _device(em: Emitter, func: Func) -> Device | None:
    match em.target.kind:
        case "cuda":
            return Nvptx(em, func)
        case "cuda-sim":
            return Simulator(em, func)
        case _:
            return None


def _cpu(em: Emitter, func: Func) -> str:
    target = em.target
    apart = "" if func.notes.get("in_place") else "noalias "
    params = [f"ptr {apart}%p{n}" for n in range(len(func.params))]
    em.buffers = {b: Value(f"%p{n}", index) for n, b in enumerate(func.params)}
    if workspace_bytes(func.body):
        params.append("ptr noalias %workspace")
    em.function = Function(func.name, ", ".join(params), target)
    emit_stmt(em, func.body)
    texts = [*em.finished, em.function.text("#0")]
    declared = sorted(em.declarations.values())
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{target.vector_bits}" }}'
    head = f'target triple = "{target.triple}"'
    return "\n".join([head, "", *texts, *declared, "", attributes, ""])
