"""The backend for NVIDIA GPUs: PTX, machine code where `ptxas` is found; the host runs plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....ir.loop.nodes import Func
from ....ir.target import Target
from ...emit.launches import launches
from ...emit.module import launches_module
from ...plan.code import Code, DeviceCode
from ...plan.nodes import Plan
from ..registry import Backend, Program, Stage
from ..timings import timed
from . import nvptx, ptxas
from .emit import Nvptx
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
        made = ptxas.assemble(ptx, target.cpu)
    usage = [made.kernels[launch.symbol] for launch in found]
    registers = tuple(u.registers for u in usage)
    spills = tuple(u.spill_stores + u.spill_loads for u in usage)
    return DeviceCode(ptx, found, made.code, registers, spills)


def _stages(text: str, target: Target) -> Iterator[Stage]:
    ptx = nvptx.compile(text, target)
    yield "ptx", lambda: ptx
    yield "asm", lambda: disassemble(ptx, target.cpu)


def _finish(plan: Plan, seal: bytes, target: Target, kernels: Mapping[str, Code]) -> Program:
    return Program()


def _no_runtime(target: Target) -> tuple[bytes, ...]:
    return ()


BACKEND = Backend(emit, _compile, _stages, _finish, _no_runtime)
