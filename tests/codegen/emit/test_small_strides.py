"""Loads and stores a few elements apart: the right elements, by contiguous vectors and shuffles."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.kernel import compile_flat
from nestwright.codegen.driver.stages import stage_text
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.ir.dtypes import s32
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.loop.build import add, mul
from nestwright.ir.loop.nodes import Buffer, Const, For, Func, Kind, Load, Store, Var
from nestwright.ir.loop.visit import seq
from nestwright.ir.target import Target

TESTS = Path(__file__).parents[2]
STEPS = (2, 3, 5, 8, 16, 17)
LANES = 16


def taken(step: int, first: int, size: int) -> HloModule:
    """``-x[:, first::step]`` for 3 rows of ``size`` elements."""
    count = -(-(size - first) // step)
    return parse(f"""HloModule strides
ENTRY e {{
  x = f32[3,{size}] parameter(0)
  s = f32[3,{count}] slice(x), slice={{[0:3], [{first}:{size}:{step}]}}
  ROOT r = f32[3,{count}] negate(s)
}}""")


@pytest.mark.parametrize("step", STEPS)
def test_every_few_elements(step: int) -> None:
    for first, size in ((0, 32 * step), (step - 1, 32 * step), (1, 16 * step + 1)):
        x = np.random.default_rng(0).standard_normal((3, size)).astype(np.float32)
        np.testing.assert_array_equal(build(taken(step, first, size))(x), -x[:, first::step])


@pytest.mark.parametrize(
    ("step", "size", "gathers"), [(3, 96, False), (3, 97, False), (17, 1, True)]
)
def test_only_lanes_far_apart_are_gathered(step: int, size: int, gathers: bool) -> None:
    """Rows need not begin at a multiple of the step."""
    module = taken(step, 0, max(size, 32 * step))
    asm = stage_text(module, "cpu -mcpu=skylake-avx512", "asm")
    assert bool(re.search(r"\sv?gather", asm)) == gathers


@pytest.mark.parametrize("depth", [2, 3, 4, 5, 6, 7, 8])
def test_short_rows_are_stored_whole(depth: int) -> None:
    """``r[i, j] = x[i, j] / sum(x[i])``, with lanes along i."""
    module = parse(f"""HloModule rows
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  x = f32[64,{depth}] parameter(0)
  z = f32[] constant(0)
  s = f32[64] reduce(x, z), dimensions={{1}}, to_apply=add
  t = f32[64,{depth}] broadcast(s), dimensions={{0}}
  ROOT r = f32[64,{depth}] divide(x, t)
}}""")
    x = np.random.default_rng(0).uniform(1, 2, (64, depth)).astype(np.float32)
    np.testing.assert_allclose(build(module)(x), x / x.sum(1, keepdims=True), rtol=1e-5)
    asm = stage_text(module, "cpu -mcpu=skylake-avx512", "asm")
    assert not re.search(r"\sv?(gather|scatter)", asm)


CHILD = '''
import guarded_memory
import numpy as np
import nestwright as nw

guarded_memory.install("{side}")
for step, first, size in {cases}:
    count = -(-(size - first) // step)
    text = f"HloModule s ENTRY e {{{{ x = f32[{{size}}] parameter(0) s = f32[{{count}}] slice(x), "
    text += f"slice={{{{[{{first}}:{{size}}:{{step}}]}}}} ROOT r = f32[{{count}}] negate(s) }}}}"
    x = np.arange(size, dtype=np.float32)
    assert np.array_equal(nw.build(nw.parse(text), cache=False)(x), -x[first::step])

text = """HloModule windows
larger {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }}
ENTRY e {{ x = f32[1,3,5,113] parameter(0)  z = f32[] constant(-inf)
  ROOT r = f32[1,3,3,56] reduce-window(x, z), window={{size=1x1x1x3 stride=1x1x2x2}},
    to_apply=larger
}}"""
x = np.arange(3 * 5 * 113, dtype=np.float32).reshape(1, 3, 5, 113)
assert np.array_equal(nw.build(nw.parse(text), cache=False)(x), x[:, :, ::2, 2::2])

text = """HloModule padded
ENTRY e {{ x = f32[3,50] parameter(0)  z = f32[] constant(7)
  ROOT r = f32[5,57] pad(x, z), padding=1_1x3_4
}}"""
x = np.arange(150, dtype=np.float32).reshape(3, 50)
padded = np.pad(x, ((1, 1), (3, 4)), constant_values=7)
assert np.array_equal(nw.build(nw.parse(text), cache=False)(x), padded)
'''


@pytest.mark.skipif(sys.platform != "linux", reason="guard pages are made as Linux makes them")
@pytest.mark.parametrize("side", ["start", "end"])
def test_nothing_outside_is_read(side: str) -> None:
    """Neither where the last step is whole, nor where it is cut off behind its element."""
    cases = [(s, k, 32 * s - d) for s in (2, 3, 4) for k in range(s) for d in {0, s - 1 - k}]
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(side=side, cases=cases)],
        env={**os.environ, "PYTHONPATH": path, "NESTWRIGHT_GUARD": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("step", [-2, -3])
def test_every_few_elements_backwards(step: int) -> None:
    count = -(-96 // -step)
    module = parse(f"""HloModule strides
ENTRY e {{
  x = f32[96] parameter(0)
  v = f32[96] reverse(x), dimensions={{0}}
  s = f32[{count}] slice(v), slice={{[0:96:{-step}]}}
  ROOT r = f32[{count}] negate(s)
}}""")
    x = np.arange(96, dtype=np.float32)
    assert np.array_equal(build(module)(x), -x[::step])


@pytest.mark.parametrize("step", [2, 4])
def test_a_pair_is_stored_alone_and_is_read_as_it_is_now(step: int) -> None:
    """``y = x[::step]; x[::step] = 7; x[1::step] = 8; z = x[::step]``"""
    x, y, z = (Buffer(n, (size,), s32) for n, size in zip("xyz", (64, LANES, LANES), strict=True))
    k = Var("k")
    at = mul(k, step)
    body = seq(
        Store(y, (k,), Load(x, (at,))),
        Store(x, (at,), Const(7, s32)),
        Store(x, (add(at, 1),), Const(8, s32)),
        Store(z, (k,), Load(x, (at,))),
    )
    func = Func("pairs", (x, y, z), 3, For(k, Const(LANES), body, Kind.VECTOR))
    found = [np.arange(n, dtype=np.int32) for n in (64, LANES, LANES)]
    code = compile_flat(func, Target.parse("cpu"))
    NativeFunc.load(code).run_at([a.ctypes.data for a in found])
    wanted, end = np.arange(64, dtype=np.int32), step * LANES
    old = wanted[:end:step].copy()
    wanted[:end:step], wanted[1:end:step] = 7, 8
    assert np.array_equal(found[0], wanted)
    assert np.array_equal(found[1], old) and (found[2] == 7).all()
