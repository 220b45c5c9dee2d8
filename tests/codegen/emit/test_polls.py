"""Where compiled code asks for signals, and whose handlers the runtime watches."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.emit.statements import interrupt_polls
from nestwright.codegen.plan.symbols import polls_interrupts
from nestwright.codegen.runtime import jit
from nestwright.codegen.runtime.interrupts import WATCHED, means_interrupt
from nestwright.codegen.runtime.process import SHARED, runtime
from nestwright.codegen.targets.cpu.backend import shared_runtime
from nestwright.codegen.targets.cpu.program import BUDGET, LARGE_UNITS, module_text
from nestwright.ir.hlo import parse
from nestwright.ir.library.registry import register_custom_call, unregister_custom_call
from nestwright.ir.loop.interp.evaluate import run as interpret
from nestwright.ir.loop.parser import parse as parse_loops
from nestwright.ir.target import Target

HOST = Target.parse("cpu")

STRIPS = {
    "serial": (
        "@func(outputs=1)\ndef f(A: f32[{n}], C: f32[{n}]):\n"
        "    for i in range({n}):\n        C[i] = -A[i]\n"
    ),
    "vector": (
        "@func(outputs=1)\ndef f(A: f32[{n}], C: f32[{n}]):\n"
        "    for i in vectorize({n}):\n        C[i] = A[i] * A[i]\n"
    ),
    "parallel": (
        "@func(outputs=1)\ndef f(A: f32[{n}], C: f32[{n}]):\n"
        "    for i in parallel({n}):\n        C[i] = A[i] + A[{n} - 1 - i]\n"
    ),
    "sum": (
        "@func(outputs=1)\ndef f(A: f32[{n}], C: f32[1]):\n    C[0] = f32(0)\n"
        "    for i in vectorize({n}):\n        C[0] = C[0] + A[i]\n"
    ),
    "nest": (
        "@func(outputs=1)\ndef f(A: f32[{n}], C: f32[{n}]):\n"
        "    for i in range({n}):\n        C[i] = f32(0)\n        for j in range(3):\n"
        "            C[i] = C[i] + A[i]\n"
    ),
}


COUNTS = (1, 2, 7, 65, 1000, 1031)
STEPS = ((0.5, 100.0), (7.0,))


@pytest.mark.parametrize(
    ("name", "n", "steps"),
    [(s, n, STEPS[(i + j) % 2]) for i, s in enumerate(STRIPS) for j, n in enumerate(COUNTS)],
)
def test_loops_that_poll_do_all_their_iterations(
    name: str, n: int, steps: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of iterations between two polls."""
    monkeypatch.setattr(interrupt_polls, "LONG", 0.0)
    func = parse_loops(STRIPS[name].format(n=n))
    x = np.random.default_rng(n).integers(-8, 8, n).astype(np.float32)
    want = interpret(func, [x])[0]
    for step in steps:
        monkeypatch.setattr(interrupt_polls, "STEP", step)
        kernel = compile_func(func, HOST)
        assert n < 1000 or polls_interrupts(kernel.compiled.code)
        assert np.array_equal(kernel(x), want)


def test_short_kernels_do_not_poll() -> None:
    """What takes less than polling is worth has nothing of it."""
    short = build(parse(ADD))
    assert not any(map(polls_interrupts, short.bundle.kernels.values()))
    large = build(parse(ADD.replace("[8]", "[4096,65536]")))
    assert all(map(polls_interrupts, large.bundle.kernels.values()))


ADD = """HloModule add
ENTRY e { x = f32[8] parameter(0)
 y = f32[8] parameter(1)
 ROOT z = f32[8] add(x, y) }"""


def test_polls_between_calls_come_by_what_the_calls_count() -> None:
    """A loop counts in a register; what is straight is counted when the program is written."""
    lines = [
        f' v{n} = f32[8192] custom-call(v{n - 1}), custom_call_target="twice"'
        for n in range(1, 2 * BUDGET // LARGE_UNITS + 2)
    ]
    register_custom_call("twice", lambda call, x: x + x)
    try:
        text = "\n".join(["HloModule many", "ENTRY e {", " v0 = f32[8192] parameter(0)", *lines])
        last = len(lines)
        module = parse(f"{text}\n ROOT r = f32[8192] add(v{last}, v{last}) }}")
        program = module_text(build(module).plan, b"", HOST)
    finally:
        unregister_custom_call("twice")
    assert program.count("call i1 @nw_poll()") == 2


def test_the_runtime_is_code_for_other_machines_too() -> None:
    for triple, cpu in (("aarch64-linux-gnu", "neoverse-v1"), ("x86_64-linux-gnu", "x86-64")):
        assert len(shared_runtime(Target.parse(f"llvm -mtriple={triple} -mcpu={cpu}"))) == SHARED


def test_guarded_calls_give_and_raise_what_the_function_does() -> None:
    guarded = runtime().guarded
    assert guarded(divmod, 7, 2) == (3, 1) and guarded(dict, a=1) == {"a": 1}
    with pytest.raises(ZeroDivisionError):
        guarded(divmod, 7, 0)
    assert guarded(guarded, guarded, max, 3, 4) == 4


def test_a_run_asks_llvm_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where LLVM links: its lock would stay taken if a handler raised while it is given back."""
    monkeypatch.setattr(jit, "is_elf", lambda data: False)
    exe = build(parse(ADD), "cuda-sim -arch=sm_90")
    x = np.ones(8, np.float32)
    exe(x, x)
    library: Any = exe.loaded().library  # type: ignore[attr-defined]
    before = len(library.trackers)
    for _ in range(3):
        exe(x, x)
    assert len(library.trackers) == before


# Handlers.


@pytest.fixture
def usr2() -> Iterator[None]:
    """The handler of SIGUSR2 is put back."""
    before = signal.getsignal(signal.SIGUSR2)
    yield
    signal.signal(signal.SIGUSR2, before)


def test_handlers_of_python_are_watched_and_others_left_alone(usr2: None) -> None:
    signals, number = runtime().signals, signal.SIGUSR2
    assert number in WATCHED and signal.SIGSEGV not in WATCHED and signal.SIGPROF not in WATCHED
    signal.signal(number, signal.SIG_IGN)
    signals.adopt()
    assert not signals._unwatched(number), "what is ignored needs no watch"
    seen: list[int] = []
    signal.signal(number, lambda n, frame: seen.append(n))
    assert signals._unwatched(number)
    signals.adopt()
    assert not signals._unwatched(number)
    os.kill(os.getpid(), number)
    assert seen == [number] and callable(signal.getsignal(number))

    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    native = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda n: None)
    address = ctypes.cast(native, ctypes.c_void_p).value
    signal.signal(number, signal.SIG_DFL)  # as far as Python knows, nobody handles it
    libc.signal(number, address)
    assert signals._unwatched(number)
    signals.adopt()
    assert not signals._unwatched(number)
    assert libc.signal(number, address) == address, "the handler is still in place"
    del native


def test_what_stands_for_keyboard_interrupt() -> None:
    assert means_interrupt(signal.default_int_handler)
    assert not means_interrupt(signal.SIG_IGN) and not means_interrupt(None)
    assert not means_interrupt(lambda number, frame: None)
    with asyncio.Runner() as runner:
        handlers: list[Any] = []

        async def look() -> None:
            handlers.append(signal.getsignal(signal.SIGINT))

        runner.run(look())
    assert handlers[0] is not signal.default_int_handler and means_interrupt(handlers[0])
