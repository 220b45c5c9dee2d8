"""The backend for NVIDIA GPUs: PTX, machine code where `ptxas` is found; the host runs plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....ir.loop.nodes import Func
from ....ir.target import Target
from ...emit.launches import launches
from ...emit.statements.module import launches_module
from ...lower.gpu.pipeline import GPU_PASSES
from ...lower.pipeline import Lowering
from ...plan.code.device import DeviceCode
from ...plan.code.form import Code
from ...plan.memory import GPU_ALIGNMENT
from ...plan.nodes import Plan
from ..compiler import Backend, CompiledPlan, Stage, Start
from ..timings import timed
from . import nvptx, ptxas, spills
from .emit import PARAM_ALIGN, Nvptx
from .sass import disassemble


def emit(func: Func, target: Target) -> str:
    """Return the LLVM text of a flat function; see ``registry.emit``."""
    return launches_module(func, target, Nvptx)


def _compile(flat: Func, target: Target, timings: dict[str, float]) -> Code:
    with timed(timings, "emit"):
        text = emit(flat, target)
    with timed(timings, "llvm"):
        ptx = nvptx.compile(text, target)
    found = launches(flat)
    if ptxas.find() is None:
        return DeviceCode(ptx, found)
    with timed(timings, "ptxas"):
        ptx, made = spills.assemble(ptx, target.cpu, target.registers)
    usage = [made.kernels[launch.symbol] for launch in found]
    registers = tuple(u.registers for u in usage)
    return DeviceCode(ptx, found, made.code, registers, tuple(map(spills.spilled, usage)))


def _stages(text: str, target: Target) -> Iterator[Stage]:
    ptx = nvptx.compile(text, target)
    if ptxas.find() is not None:
        ptx, _ = spills.assemble(ptx, target.cpu, target.registers)
    yield "ptx", lambda: ptx
    yield "asm", lambda: disassemble(ptx, target.cpu)


def _finish(plan: Plan, seal: bytes, target: Target, kernels: Mapping[str, Code]) -> CompiledPlan:
    return CompiledPlan()


def _no_runtime(target: Target) -> tuple[bytes, ...]:
    return ()


def _ptx(text: str, target: Target) -> bytes:
    return nvptx.compile(text, target).encode()


def _cubin(ptx: str, target: Target) -> bytes:
    return ptxas.assemble(ptx, target.cpu).code


STARTS = {"llvm": Start("PTX", _ptx), "ptx": Start("machine code", _cubin)}
BACKEND = Backend(
    lowering=Lowering(GPU_PASSES),
    emit=emit,
    compile=_compile,
    listings=("ptx", "asm"),
    stages=_stages,
    starts=STARTS,
    finish=_finish,
    runtime=_no_runtime,
    alignment=GPU_ALIGNMENT,
    argument_alignment=PARAM_ALIGN,
    weight=2,  # LLVM and ptxas run in processes of their own
)
