"""What depends on the kind of target: how a group is compiled, a program finished, a bundle loaded.

``cpu`` and ``cuda-sim`` (GPU schedules, simulated) make object code for a processor and one native
function that runs the plan. ``cuda`` makes PTX, and machine code where ``ptxas`` is found; the host
runs the plan. Nothing of CUDA is imported until such a bundle is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ..ir.errors import TargetError
from ..ir.loop.nodes import Func
from ..ir.target import Target
from . import cpu, nvptx, program, ptxas
from .code import Code, DeviceCode, polls
from .llvm_ir import emit
from .llvm_ir_device import launches
from .plan import Plan
from .runtime.bundle import Bundle
from .runtime.cuda.program import load_program
from .runtime.native import Native
from .runtime.process import objects
from .runtime.profile import ThunkTime
from .sass import disassemble
from .sim.executable import Simulated
from .sim.process import runtime_object
from .symbols import SIMULATION_FAILED
from .timings import timed

Stage: TypeAlias = tuple[str, Callable[[], str]]


@dataclass(frozen=True, slots=True)
class Program:
    """What runs a plan: native code, and the runtime that it needs. A GPU needs neither."""

    code: bytes = b""
    runtime: tuple[bytes, ...] = ()


class Loaded(Protocol):
    """A bundle that can run in this process."""

    @property
    def call(self) -> Callable[..., Any]:
        """What Python calls with a call's arguments."""

    def run(self, args: Sequence[object], out: object) -> Any:
        """A call; the results go to ``out`` unless it is None."""

    def put(self, value: Any) -> Any:
        """An array where the program runs, so that a call need not move it."""

    def seconds(self, action: Callable[[], object]) -> float:
        """How long what an action runs or submits takes there."""

    def profile(self, args: Sequence[object], rounds: int) -> tuple[ThunkTime, ...]:
        """The time of each thunk of the plan, run one at a time."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One kind of target.

    ``compile`` makes a flat function's code and notes the seconds of each stage; ``stages`` gives
    the stages after LLVM's text and what prints each; ``finish`` makes what runs the plan on the
    kernels' code, given by symbol, under a seal (``codegen.seal``); ``load`` may raise
    ``TargetError``, for a machine that cannot run it.
    """

    compile: Callable[[Func, Target, dict[str, float]], Code]
    stages: Callable[[str, Target], Iterator[Stage]]
    finish: Callable[[Plan, bytes, Target, Mapping[str, Code]], Program]
    load: Callable[[Bundle], Loaded]


def backend(target: Target) -> Backend:
    """The backend of a target."""
    return _BACKENDS[target.kind]


def _compile_native(flat: Func, target: Target, timings: dict[str, float]) -> Code:
    with timed(timings, "emit"):
        text = emit(flat, target)
    with timed(timings, "llvm"):
        return cpu.compile(text, target.host)


def _native_stages(text: str, target: Target) -> Iterator[Stage]:
    yield "asm", lambda: cpu.assembly(text, target.host)


def _finish_native(plan: Plan, seal: bytes, target: Target, kernels: Mapping[str, Code]) -> Program:
    host = target.host
    polling = [symbol for symbol, code in kernels.items() if polls(code)]
    text = program.module_text(plan, seal, host, polling=polling)
    return Program(cpu.compile(text, host), objects(host))


def _load_native(bundle: Bundle) -> Loaded:
    if not bundle.target.is_host:
        raise TargetError(
            f"{bundle.name} was built for {bundle.target.spec}",
            "this machine cannot run its code",
            hint="save it and load it on such a machine",
        )
    return Native(bundle)


def _compile_device(flat: Func, target: Target, timings: dict[str, float]) -> Code:
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


def _device_stages(text: str, target: Target) -> Iterator[Stage]:
    ptx = nvptx.compile(text, target)
    yield "ptx", lambda: ptx
    yield "asm", lambda: disassemble(ptx, target.cpu)


def _finish_simulated(
    plan: Plan, seal: bytes, target: Target, kernels: Mapping[str, Code]
) -> Program:
    host = target.host
    code = cpu.compile(program.module_text(plan, seal, host, SIMULATION_FAILED), host)
    return Program(code, (*objects(host), runtime_object(host)))


def _finish_device(plan: Plan, seal: bytes, target: Target, kernels: Mapping[str, Code]) -> Program:
    return Program()


_NATIVE = Backend(_compile_native, _native_stages, _finish_native, _load_native)
_DEVICE = Backend(_compile_device, _device_stages, _finish_device, load_program)
_SIMULATED = Backend(_compile_native, _native_stages, _finish_simulated, Simulated)
_BACKENDS = {"cpu": _NATIVE, "cuda-sim": _SIMULATED, "cuda": _DEVICE}
