"""The backend for simulated GPUs: their schedules as object code for this processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from ....ir.loop.nodes import Func
from ....ir.target import Target
from ...emit.statements.interrupt_polls import poll_points
from ...emit.statements.module import launches_module
from ...lower.gpu.pipeline import GPU_PASSES
from ...lower.pipeline import Lowering
from ...plan.code.form import Code
from ...plan.memory import GPU_ALIGNMENT
from ...plan.nodes import Plan
from ...plan.symbols import SIMULATION_FAILED
from ..compiler import CompiledPlan
from ..cpu import program
from ..cpu import toolchain as cpu
from ..cpu.backend import BACKEND as PROCESSOR
from ..cpu.backend import shared_runtime
from ..cpu.probe import probe
from ..cuda.emit import PARAM_ALIGN
from .roll import roll
from .runtime import module_text
from .simulator import Simulator

SLOW = 20.0  # times as long takes an access of a simulated thread


@cache
def _own_runtime(host: Target) -> bytes:
    return cpu.compile_once(module_text(host), host)


def runtime(target: Target) -> tuple[bytes, ...]:
    """Return what all executables share, and the simulator, whose state is per library."""
    return (*shared_runtime(target.host), _own_runtime(target.host))


def emit(func: Func, target: Target) -> str:
    """Return the LLVM text of a flat function; see ``registry.emit``."""
    rolled = roll(func)
    points = poll_points(rolled, target.host, SLOW)
    return launches_module(rolled, target, Simulator, points)


def _finish(plan: Plan, seal: bytes, target: Target, kernels: Mapping[str, Code]) -> CompiledPlan:
    text = program.module_text(plan, seal, target.host, SIMULATION_FAILED)
    return CompiledPlan(cpu.compile(text, target.host), runtime(target))


def _probed(plan: Plan, target: Target, kernels: Mapping[str, Code]) -> tuple[bytes, ...]:
    text = program.module_text(plan, b"", target.host, SIMULATION_FAILED, probed=True)
    return cpu.compile(text, target.host), probe(target.host)


BACKEND = replace(
    PROCESSOR,
    lowering=Lowering(GPU_PASSES),
    emit=emit,
    finish=_finish,
    runtime=runtime,
    probed=_probed,
    alignment=GPU_ALIGNMENT,
    argument_alignment=PARAM_ALIGN,
    library=None,
)
