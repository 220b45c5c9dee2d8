"""Streaming stores: the same bytes as plain ones wherever results begin, fenced, and only lines."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.compile_group import apply, loops, with_streams
from nestwright.codegen.driver.kernel import compile_func
from nestwright.codegen.plan.groups import fuse_module
from nestwright.codegen.plan.streaming import streamed_outputs
from nestwright.codegen.targets.registry import emit, lower
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.loop.nodes import Func
from nestwright.ir.target import Target

REDUCERS = """
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }
"""
SOFTMAX = """
  x = f32[{0},{1}] parameter(0)
  lowest = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[{0}] reduce(x, lowest), dimensions={{1}}, to_apply=max
  ms = f32[{0},{1}] broadcast(m), dimensions={{0}}
  d = f32[{0},{1}] subtract(x, ms)
  e = f32[{0},{1}] exponential(d)
  n = f32[{0}] reduce(e, zero), dimensions={{1}}, to_apply=sum
  ns = f32[{0},{1}] broadcast(n), dimensions={{0}}
  ROOT r = f32[{0},{1}] divide(e, ns)
"""
NEGATE = """
  x = f32[{0},{1}] parameter(0)
  ROOT r = f32[{0},{1}] negate(x)
"""
TURN = """
  x = f32[{1},{0}] parameter(0)
  ROOT r = f32[{0},{1}] transpose(x), dimensions={{1,0}}
"""
WIDEN = """
  x = s8[{0},{1}] parameter(0)
  ROOT r = f32[{0},{1}] convert(x)
"""
BODIES = {"softmax": SOFTMAX, "negate": NEGATE, "turn": TURN, "widen": WIDEN}
WIDE = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5 -threads=2")
HOSTS = [Target.parse(f"cpu -threads={n}") for n in (1, 2)]


def text(body: str, rows: int, columns: int) -> str:
    return f"HloModule m\n{REDUCERS}\nENTRY main {{{body.format(rows, columns)}}}"


def scheduled(source: str, target: Target) -> Func:
    (group,) = fuse_module(optimize(parse(source))).distinct.values()
    func, _ = loops(group.computation, "kernel", None, target)
    return apply(func, target, None).func


def llvm(func: Func, target: Target) -> str:
    return emit(lower(func, target), target)


SHAPES = [(7, 64), (33, 160), (5, 50), (2, 16), (64, 3), (600, 96)]


@pytest.mark.parametrize(
    ("body", "shape", "target"),
    [(b, s, HOSTS[(i + j) % 2]) for i, b in enumerate(BODIES) for j, s in enumerate(SHAPES)],
    ids=lambda x: x.spec if isinstance(x, Target) else str(x),
)
def test_the_same_bytes_wherever_the_result_begins(
    body: str, shape: tuple[int, int], target: Target
) -> None:
    """Of every body and shape, on one thread and on two in turn."""
    func = scheduled(text(BODIES[body], *shape), target)
    plain, streaming = compile_func(func, target), compile_func(with_streams(func, (0,)), target)
    given = func.params[0]
    numbers = np.random.default_rng(1).integers(-99, 99, tuple(map(int, given.shape)))
    x = numbers.astype("i1" if given.dtype.is_int else "f4")
    expected = plain(x)
    for start in (0, 4, 32, 60):
        memory, size = aligned(expected.nbytes + 128), expected.nbytes
        memory[:] = 0xA5
        out = memory[start : start + size].view(np.float32).reshape(shape)
        assert streaming(x, out=out) is out
        np.testing.assert_array_equal(out.view(np.uint32), expected.view(np.uint32))
        assert (memory[:start] == 0xA5).all()
        assert (memory[start + size :] == 0xA5).all()


def aligned(size: int) -> np.ndarray[Any, Any]:
    """Return bytes that begin at a cache line."""
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def test_a_result_in_the_place_of_an_input() -> None:
    target = HOSTS[1]
    streaming = compile_func(with_streams(scheduled(text(NEGATE, 96, 64), target), (0,)), target)
    x = aligned(96 * 64 * 4).view(np.float32).reshape(96, 64)
    x[:] = np.arange(x.size).reshape(x.shape)
    expected = -x
    streaming.loaded.run_at([x.ctypes.data, x.ctypes.data])
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("body", [SOFTMAX, NEGATE, TURN], ids=["softmax", "negate", "turn"])
def test_every_part_of_a_thread_ends_in_a_fence(body: str, threads: int) -> None:
    target = Target.parse(f"{WIDE.spec.split(' -threads')[0]} -threads={threads}")
    code = llvm(with_streams(scheduled(text(body, 512, 128), target), (0,)), target)
    assert code.count("!0 = !{i32 1}") == 1
    functions = re.findall(r"^define .*?^}", code, re.M | re.S)
    streaming = [f for f in functions if "!nontemporal" in f]
    assert len(streaming) == 1
    last = streaming[0].rindex("!nontemporal")
    assert "call void @llvm.x86.sse.sfence()" in streaming[0][last:]
    assert all("align 64, !nontemporal" in x for x in code.split("\n") if "!nontemporal" in x)


def test_no_streams_of_parts_of_lines() -> None:
    func = with_streams(scheduled(text(NEGATE, 3, 50), WIDE), (0,))
    assert "!nontemporal" in llvm(func, WIDE)  # 150 elements in a row
    func = with_streams(scheduled(text(SOFTMAX, 3, 50), WIDE), (0,))
    assert "!nontemporal" not in llvm(func, WIDE)
    narrow = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
    func = with_streams(scheduled(text(NEGATE, 64, 64), narrow), (0,))
    assert "!nontemporal" not in llvm(func, narrow)
    arm = Target.parse("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1")
    func = with_streams(scheduled(text(NEGATE, 64, 64), arm), (0,))
    assert "!nontemporal" not in llvm(func, arm)


def streams(source: str, target: Target = WIDE) -> list[tuple[int, ...]]:
    """Return the streamed outputs of each group, in order."""
    groups = fuse_module(optimize(parse(source)))
    found = streamed_outputs(groups, target)
    (fusion,) = groups.fusions.values()
    return [found.get(groups.keys[g], ()) for g in fusion.groups]


def test_a_large_result_that_nothing_reads_is_streamed() -> None:
    assert streams(text(SOFTMAX, 4096, 1024)) == [(0,)]
    assert streams(text(SOFTMAX, 1024, 1024)) == [()]


COLUMNS = """
  b = f32[4096,1024] exponential(r)
  c = f32[1024] reduce(b, zero), dimensions={0}, to_apply=sum
  cs = f32[4096,1024] broadcast(c), dimensions={1}
  ROOT q = f32[4096,1024] divide(b, cs)
"""


def test_a_result_that_is_read_soon_is_not() -> None:
    first = SOFTMAX.format(4096, 1024).replace("ROOT ", "")
    found = streams(f"HloModule m\n{REDUCERS}\nENTRY main {{{first}{COLUMNS}}}")
    assert len(found) > 1
    assert found[-1] == (0,)
    assert not any(found[:-1])
