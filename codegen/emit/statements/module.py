"""One kernel as an LLVM module: ``void name(ptr, ..., [ptr workspace])``.

Parameters are the function's buffers in order. A function that needs memory for intermediate
buffers outside of parallel loops (``WORKSPACE_BYTES``) takes a pointer to it last. Buffers do not
overlap, unless ``IN_PLACE`` says that an output may be an input. For a GPU there is one kernel per
launch (see ``emit.launches``), all with these parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ....ir.dtypes import index
from ....ir.errors import UnsupportedError
from ....ir.loop.nodes import Func
from ....ir.loop.notes import IN_PLACE
from ....ir.target import Target
from ...lower.passes.workspace import workspace_bytes
from ..access import NONTEMPORAL
from ..expr import Emitter
from ..launches import DeviceEmitter, nests
from ..llvm.core import Function, IRValue
from ..llvm.opaque import lane_dependent_buffers
from .flushing import definitions, mode_texts
from .stmt import emit_nest, emit_stmt
from .streaming import METADATA, emit_streaming
from .tile_dots import end_tiles

STACK = 64  # bytes that a kernel's frame is aligned to
NO_POLLS: Mapping[int, int] = MappingProxyType({})


def function_module(func: Func, target: Target, polls: Mapping[int, int] = NO_POLLS) -> str:
    """Return a flat function as one LLVM function.

    ``polls`` is the result of ``interrupt_polls.poll_points``.
    ``UnsupportedError`` for element types and operations that there is no code for.
    """
    em = _emitter(func, target, polls)
    noalias = "" if IN_PLACE.of(func) else "noalias "
    params = [f"ptr {noalias}%p{n}" for n in range(len(func.params))]
    em.buffers = {b: IRValue(f"%p{n}", index) for n, b in enumerate(func.params)}
    if workspace_bytes(func.body):
        params.append("ptr noalias %workspace")
    em.function = Function(func.name, ", ".join(params), target)
    emit_streaming(em, func, emit_stmt)
    end_tiles(em)
    texts = [*em.finished, *definitions(em.function, "#0")]
    texts += mode_texts(target, em.declarations)
    declared = sorted(em.declarations.values())
    width = f'"prefer-vector-width"="{target.vector_bits}"'
    # Spilled vectors lie in whole cache lines: LLVM aligns what it spills as the stack is aligned.
    attributes = f"attributes #0 = {{ nounwind alignstack={STACK} {width} }}"
    head = f'target triple = "{target.triple}"'
    kinds = [METADATA] if any(NONTEMPORAL in text for text in texts) else []
    return "\n".join([head, "", *texts, *declared, "", attributes, *kinds, ""])


def launches_module(
    func: Func,
    target: Target,
    device: Callable[[Emitter, Func], DeviceEmitter],
    polls: Mapping[int, int] = NO_POLLS,
) -> str:
    """Return a flat GPU function as one kernel per launch, emitted by ``device``.

    ``UnsupportedError`` as for ``function_module``.
    """
    em = _emitter(func, target, polls)
    writer = device(em, func)
    em.device, em.libm, em.has_fma, em.estimates = writer, False, True, True
    em.f8_pairs = target.gpu.f8
    launches = nests(func)
    for nest in launches:
        emit_nest(em, writer, nest)
    return writer.module(launches)


def _emitter(func: Func, target: Target, polls: Mapping[int, int]) -> Emitter:
    if func.symbols:
        names = ", ".join(v.name for v in func.symbols)
        raise UnsupportedError(f"function {func.name} over symbols {names}", "bind them first")
    em = Emitter(target)
    em.lane_dependent = lane_dependent_buffers(func.body)
    em.polls = polls
    return em
