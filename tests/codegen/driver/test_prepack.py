"""Constants packed when a model is built: what is cut out of a kernel, what not, what it computes.

Operands are small whole numbers, so that sums in any order are exact.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nestwright.codegen.driver import parallel, worker
from nestwright.codegen.driver.build import build
from nestwright.codegen.driver.compile_group import compile_text
from nestwright.codegen.driver.kernel import compile_func, compile_object
from nestwright.codegen.driver.prepack import split_packs
from nestwright.codegen.plan.code.kernel import KernelCode
from nestwright.codegen.plan.groups import fuse_module
from nestwright.codegen.plan.nodes import BufferSlice, KernelThunk, walk
from nestwright.codegen.runtime.executable import Executable
from nestwright.codegen.runtime.function import NativeFunc
from nestwright.codegen.runtime.packing import packers
from nestwright.ir.arrays import Array
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.passes.prepare.freeze_parameters import freeze
from nestwright.ir.hlo.text import parse
from nestwright.ir.hlo.text.canonical import canonical_text
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse as parse_loops
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.sketches.generate import generate
from nestwright.te.from_hlo import lower_group

HOST = Target.parse("cpu -threads=2")
ROWS_BY_COLUMNS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"

# ---- cutting --------------------------------------------------------------------------------

BEFORE = """\
@func(outputs=1, frozen=(1,))
def f(X: f32[4], W: f32[3, 4], C: f32[4, 3]):
    P = alloc(f32[4, 3])
    for i in range(4):
        for j in range(3):
            with block("pack"):
                vi, vj = spatial(4, i), spatial(3, j)
                reads(W[vj, vi])
                writes(P[vi, vj])
                P[vi, vj] = W[vj, vi]
    for i in range(4):
        for j in range(3):
            with block("out"):
                vi, vj = spatial(4, i), spatial(3, j)
                reads(X[vi], P[vi, vj])
                writes(C[vi, vj])
                C[vi, vj] = X[vi] * P[vi, vj]
"""

MAIN = """\
@func(outputs=1, frozen=(1,))
def f(X: f32[4], P: f32[4, 3], C: f32[4, 3]):
    for i in range(4):
        for j in range(3):
            with block("out"):
                vi, vj = spatial(4, i), spatial(3, j)
                reads(X[vi], P[vi, vj])
                writes(C[vi, vj])
                C[vi, vj] = X[vi] * P[vi, vj]
"""

PACK = """\
@func(outputs=1)
def f_pack1(W: f32[3, 4], P: f32[4, 3]):
    for i in range(4):
        for j in range(3):
            with block("pack"):
                vi, vj = spatial(4, i), spatial(3, j)
                reads(W[vj, vi])
                writes(P[vi, vj])
                P[vi, vj] = W[vj, vi]
"""

UPDATE = """\
    for i in range(4):
        with block("update"):
            vi = spatial(4, i)
            reads(X[vi])
            writes(P[vi, 0])
            P[vi, 0] = X[vi]
"""

LAST = '    for i in range(4):\n        for j in range(3):\n            with block("out"):\n'


def test_a_copy_of_a_constant_is_cut_out() -> None:
    main, packs = split_packs(parse_loops(BEFORE))
    assert show(main) == MAIN
    assert [(p.index, show(p.func)) for p in packs] == [(1, PACK)]
    verify(main)
    verify(packs[0].func)


NOT_CUT = {
    "the input is not a constant": BEFORE.replace("frozen=(1,)", "frozen=(0,)"),
    "nothing is known of the inputs": BEFORE.replace(", frozen=(1,)", ""),
    "another block reads the constant": BEFORE.replace(
        "reads(X[vi], P[vi, vj])", "reads(X[vi], P[vi, vj], W[vj, vi])"
    ).replace("= X[vi] * P[vi, vj]", "= X[vi] * P[vi, vj] + W[vj, vi]"),
    "the copy is updated in place": BEFORE.replace(LAST, UPDATE + LAST),
    "the copy reads another input": BEFORE.replace(
        "reads(W[vj, vi])", "reads(W[vj, vi], X[vi])"
    ).replace("P[vi, vj] = W[vj, vi]", "P[vi, vj] = W[vj, vi] + X[vi]"),
    "the copy needs memory of its own": BEFORE.replace(
        "    P = alloc(f32[4, 3])\n", "    P = alloc(f32[4, 3])\n    T = alloc(f32[4, 3])\n"
    ).replace(
        "                P[vi, vj] = W[vj, vi]\n",
        "                T[vi, vj] = W[vj, vi]\n                P[vi, vj] = T[vi, vj]\n",
    ),
    "the copy stays in registers": BEFORE.replace(
        "alloc(f32[4, 3])", 'alloc(f32[4, 3], scope="register")'
    ),
    "nothing would be left": BEFORE[: BEFORE.index(LAST)],
    "the copy is the result": BEFORE[: BEFORE.index(LAST)]
    .replace("    P = alloc(f32[4, 3])\n", "")
    .replace("P[vi, vj]", "C[vi, vj]"),
}


@pytest.mark.parametrize("why", NOT_CUT)
def test_what_is_not_a_copy_of_a_constant_stays(why: str) -> None:
    func = parse_loops(NOT_CUT[why])
    main, packs = split_packs(func)
    assert main is func
    assert packs == ()


def test_an_updated_copy_of_a_constant_is_fresh_in_every_call() -> None:
    kernel = compile_func(parse_loops(NOT_CUT["the copy is updated in place"]), HOST)
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    for start in (0, 5):
        x = np.arange(start, start + 4, dtype=np.float32)
        p = w.T.copy()
        p[:, 0] = x
        np.testing.assert_array_equal(kernel(x, w), x[:, None] * p)


# ---- kernels --------------------------------------------------------------------------------


def ahead(rows: int, depth: int, columns: int, **choices: int) -> Func:
    """A product with a frozen matrix, packed ahead of the call in tiles as chosen."""
    text = f"""HloModule m
ENTRY e {{ x = f32[{rows},{depth}] parameter(0)
 w = f32[{depth},{columns}] parameter(1), frozen=true
 ROOT d = f32[{rows},{columns}] dot(x, w), {ROWS_BY_COLUMNS} }}"""
    func = lower_group(parse(text).entry, "f")
    sketch = generate(func, HOST)[0]
    sch = Schedule(func)
    sketch.apply(sch, {**sketch.default, "pack": 2, **choices})
    return sch.func


def whole(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-3, 4, shape).astype(np.float32)


def test_the_packed_layout_is_tiles_of_columns_and_its_padding_is_zero() -> None:
    compiled = compile_object(ahead(5, 7, 11, lanes=4, vectors=1), HOST)
    (pack,) = compiled.packs
    w = whole(np.random.default_rng(0), 7, 11) + 10
    made = packers(compiled.packs)[pack.index].pack(w).view(np.float32).reshape(3, 7, 4)
    padded = np.zeros((7, 12), np.float32)
    padded[:, :11] = w
    np.testing.assert_array_equal(made, padded.reshape(7, 3, 4).transpose(1, 0, 2))
    assert compiled.params[pack.index].dims == (7, 11)


@pytest.mark.parametrize("vectors", [1, 2])
def test_a_kernel_packs_what_it_is_called_with(vectors: int) -> None:
    kernel = compile_func(ahead(9, 13, 29, vectors=vectors), HOST)
    assert list(kernel.loaded.packs) == [1]
    rng = np.random.default_rng(1)
    for _ in range(2):
        x, w = whole(rng, 9, 13), whole(rng, 13, 29)
        np.testing.assert_array_equal(kernel(x, w), x @ w)
        np.testing.assert_array_equal(kernel(x, np.asfortranarray(w)), x @ w)


def test_a_packed_layout_is_dense() -> None:
    func = parse_loops(BEFORE.replace("alloc(f32[4, 3])", "alloc(f32[4, 3], align=(0, 16, 8))"))
    main, packs = split_packs(func)
    assert (show(main), show(packs[0].func)) == (MAIN, PACK)
    kernel = compile_func(func, HOST)
    x, w = whole(np.random.default_rng(3), 4), whole(np.random.default_rng(4), 3, 4)
    np.testing.assert_array_equal(kernel(x, w), x[:, None] * w.T)


def test_bound_addresses_serve_many_bare_calls() -> None:
    kernel = NativeFunc.load(compile_object(ahead(3, 17, 19), HOST))
    rng = np.random.default_rng(2)
    x, w, out = whole(rng, 3, 17), whole(rng, 17, 19), np.empty((3, 19), np.float32)
    plain = [a.ctypes.data for a in (x, w, out)]
    bound, held = kernel.bind(plain)
    assert (bound[0], bound[2]) == (plain[0], plain[2])
    assert bound[1] == held[0].ctypes.data
    expected = x @ w
    w[:] = 99  # what was packed is a copy
    work = np.empty(kernel.compiled.workspace + 64, np.uint8)
    extra = [ctypes.c_void_p(work.ctypes.data)] if kernel.compiled.workspace else []
    for _ in range(2):
        out[:] = np.nan
        kernel.entry(*bound, *extra)
        np.testing.assert_array_equal(out, expected)


# ---- models ---------------------------------------------------------------------------------

MODELS = {
    "dot": f"""
ENTRY e {{ x = f32[9,70] parameter(0)
 w = f32[70,53] parameter(1)
 ROOT d = f32[9,53] dot(x, w), {ROWS_BY_COLUMNS} }}""",
    "dot bf16": f"""
ENTRY e {{ x = bf16[9,40] parameter(0)
 w = bf16[40,53] parameter(1)
 ROOT d = f32[9,53] dot(x, w), {ROWS_BY_COLUMNS} }}""",
    "batched dot": """
ENTRY e { x = f32[3,7,31] parameter(0)
 w = f32[3,31,45] parameter(1)
 ROOT d = f32[3,7,45] dot(x, w), lhs_batch_dims={0}, lhs_contracting_dims={2},
   rhs_batch_dims={0}, rhs_contracting_dims={1} }""",
    "conv": """
ENTRY e { x = f32[1,7,9,5] parameter(0)
 w = f32[3,3,5,37] parameter(1)
 ROOT c = f32[1,7,9,37] convolution(x, w), window={size=3x3 pad=1_1x1_1},
   dim_labels=b01f_01io->b01f }""",
    "conv nchw": """
ENTRY e { x = f32[1,5,7,9] parameter(0)
 w = f32[21,5,3,3] parameter(1)
 ROOT c = f32[1,21,4,5] convolution(x, w), window={size=3x3 stride=2x2 pad=1_1x1_1},
   dim_labels=bf01_oi01->bf01 }""",
    "depthwise": """
ENTRY e { x = f32[1,7,6,37] parameter(0)
 w = f32[3,3,1,37] parameter(1)
 ROOT c = f32[1,7,6,37] convolution(x, w), window={size=3x3 pad=1_1x1_1},
   dim_labels=b01f_01io->b01f, feature_group_count=37 }""",
    "1x1": """
ENTRY e { x = f32[1,6,5,33] parameter(0)
 w = f32[1,1,33,51] parameter(1)
 ROOT c = f32[1,6,5,51] convolution(x, w), window={size=1x1}, dim_labels=b01f_01io->b01f }""",
}

SHARED = f"""
ENTRY e {{ x = f32[5,45] parameter(0)
 v = f32[45,45] parameter(1)
 w = f32[45,45] parameter(2)
 d = f32[5,45] dot(x, v), {ROWS_BY_COLUMNS}
 ROOT e = f32[5,45] dot(d, w), {ROWS_BY_COLUMNS} }}"""

WIDE = f"""
ENTRY e {{ x = f32[5,45] parameter(0)
 w = f32[45,203] parameter(1)
 ROOT d = f32[5,203] dot(x, w), {ROWS_BY_COLUMNS} }}"""

KEPT = WIDE.replace("ROOT d", "d").replace(
    " }", "\n ROOT t = (f32[5,203], f32[45,203]) tuple(d, w) }"
)

LOOP = f"""
cond {{ s = (s32[], f32[4,37]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT l = pred[] compare(i, n), direction=LT }}
body {{ s = (s32[], f32[4,37]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[4,37] get-tuple-element(s), index=1
 w = f32[37,37] constant(WEIGHT)
 y = f32[4,37] dot(x, w), {ROWS_BY_COLUMNS}
 one = s32[] constant(1)
 j = s32[] add(i, one)
 ROOT t = (s32[], f32[4,37]) tuple(j, y) }}
ENTRY e {{ x = f32[4,37] parameter(0)
 zero = s32[] constant(0)
 s = (s32[], f32[4,37]) tuple(zero, x)
 w = (s32[], f32[4,37]) while(s), condition=cond, body=body
 ROOT r = f32[4,37] get-tuple-element(w), index=1 }}"""

EMPTY = f"""
ENTRY e {{ x = f32[3,0] parameter(0)
 w = f32[0,20] parameter(1)
 ROOT d = f32[3,20] dot(x, w), {ROWS_BY_COLUMNS} }}"""


def model(body: str) -> HloModule:
    return parse(f"HloModule m\n{body}")


def arguments(module: HloModule, seed: int = 0) -> list[Array]:
    """Small whole numbers of the entry's types."""
    drawn = random_arguments(module.entry, seed)
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, a.shape).astype(a.dtype) for a in drawn]


def frozen_kernels(body: str, *constants: int) -> dict[str, KernelCode]:
    module = model(body)
    args = arguments(module)
    groups = fuse_module(optimize(freeze(module, {n: args[n] for n in constants})))
    return {
        key: compile_text(canonical_text(g.computation), f"k{n}", HOST, None, {})
        for n, (key, g) in enumerate(groups.distinct.items())
    }


def memory(exe: Executable) -> bytes:
    return bytes(exe.bundle.constants)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_packed_constants_computes_the_same(name: str) -> None:
    module = model(MODELS[name])
    x, w = arguments(module)
    expected = evaluate(module, [x, w])
    np.testing.assert_array_equal(build(module)(x, w), expected)
    exe = build(module, constants={1: w})
    for _ in range(2):
        np.testing.assert_array_equal(exe(x), expected)
    packed = any(k.packs for k in frozen_kernels(MODELS[name], 1).values())
    assert packed == (name != "depthwise"), "a stencil reads its few weights where they are"


def test_without_constants_nothing_is_packed() -> None:
    assert not any(k.packs for k in frozen_kernels(MODELS["dot"]).values())


def test_two_calls_share_a_kernel_and_have_constants_of_their_own() -> None:
    module = model(SHARED)
    x, v, w = arguments(module)
    exe = build(module, constants={1: v, 2: w})
    np.testing.assert_array_equal(exe(x), x @ v @ w)
    calls = [t for t in walk(exe.plan.thunks) if isinstance(t, KernelThunk)]
    assert len({t.symbol for t in calls}) == 1
    packed = [weight_of(t) for t in calls]
    assert packed[0] != packed[1]
    same = build(module, constants={1: v, 2: v})
    np.testing.assert_array_equal(same(x), x @ v @ v)
    calls = [t for t in walk(same.plan.thunks) if isinstance(t, KernelThunk)]
    assert weight_of(calls[0]) == weight_of(calls[1])


def weight_of(call: KernelThunk) -> BufferSlice:
    (found,) = (s for s in call.args if s.memory == "constant")
    return found


def test_a_constant_that_is_only_packed_is_not_kept_as_it_was() -> None:
    module = model(WIDE)
    _, w = arguments(module)
    exe = build(module, constants={1: w})
    assert w.tobytes() not in memory(exe)
    (kernel,) = frozen_kernels(WIDE, 1).values()
    assert exe.plan.constant_bytes < 2 * w.nbytes
    assert packers(kernel.packs)[kernel.packs[0].index].pack(w).tobytes() in memory(exe)


def test_a_constant_that_is_a_result_as_well_is_kept_in_both_forms() -> None:
    module = model(KEPT)
    x, w = arguments(module)
    exe = build(module, constants={1: w})
    for _ in range(2):
        product, weight = exe(x)
        np.testing.assert_array_equal(product, x @ w)
        np.testing.assert_array_equal(weight, w)
    assert w.tobytes() in memory(exe)
    assert exe.plan.constant_bytes >= 2 * w.nbytes


def test_a_loops_body_packs_its_constants_once() -> None:
    w = np.roll(np.eye(37, dtype=np.float32), 5, axis=1)
    rows = ", ".join("{" + ", ".join(str(int(v)) for v in row) + "}" for row in w)
    module = model(LOOP.replace("WEIGHT", "{" + rows + "}"))
    (x,) = (whole(np.random.default_rng(4), 4, 37),)
    exe = build(module)
    np.testing.assert_array_equal(exe(x), x @ w @ w @ w)
    assert exe.plan.constant_bytes < 2 * w.nbytes


def test_a_product_over_nothing_is_zero() -> None:
    module = model(EMPTY)
    x, w = arguments(module)
    np.testing.assert_array_equal(build(module, constants={1: w})(x), np.zeros((3, 20)))


def test_the_stages_show_what_is_built() -> None:
    module = model(MODELS["dot"])
    _, w = arguments(module)
    exe = build(module, constants={1: w})
    assert f"{exe.plan.constant_bytes}" in exe.as_text("plan")
    scheduled, flat = exe.as_text("scheduled"), exe.as_text("flat")
    assert "p1_cache = alloc" in scheduled or "p0_cache = alloc" in scheduled
    assert "_cache: f32[" in flat.split(") ->")[0]


LOAD = """
import hashlib, sys, numpy as np
from nestwright.codegen.driver.artifact import load
exe = load(sys.argv[1])
print(hashlib.sha256(exe(np.load(sys.argv[2])).tobytes()).hexdigest())
"""


def test_a_saved_model_gives_the_same_bits_in_another_process(tmp_path: Path) -> None:
    module = model(MODELS["dot"])
    w = random_arguments(module.entry, 5)[1]
    x = random_arguments(module.entry, 6)[0]
    exe = build(module, constants={1: w})
    exe.save(tmp_path / "a.nw")
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, "-c", LOAD, str(tmp_path / "a.nw"), str(tmp_path / "x.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hashlib.sha256(exe(x).tobytes()).hexdigest()


# ---- helpers --------------------------------------------------------------------------------


def answer() -> tuple[parallel.CompileJob, bytes]:
    """A job with a packed constant, and what a worker answers."""
    module = model(MODELS["dot"])
    groups = fuse_module(optimize(freeze(module, {1: arguments(module)[1]})))
    (group,) = groups.distinct.values()
    job = parallel.CompileJob(canonical_text(group.computation), "k", None)
    line = {
        "text": job.text,
        "symbol": job.symbol,
        "target": HOST.spec,
        "trace": None,
        "accuracy": None,
        "bypassing": (),
    }
    answers = io.BytesIO()
    worker.serve(io.BytesIO(json.dumps(line).encode() + b"\n"), answers)
    return job, answers.getvalue()


def asked(job: parallel.CompileJob, answers: bytes) -> KernelCode | None:
    """What the parent makes of a worker's bytes."""
    helper = object.__new__(parallel.Helper)
    queue = parallel.Queue(HOST, {"k": job}, parallel.deque())
    helper.process = SimpleNamespace(stdin=io.BytesIO(), stdout=io.BytesIO(answers))  # type: ignore[assignment]
    return helper.ask(queue, job)


def test_packs_travel_from_a_helper_and_are_never_cut_short() -> None:
    job, answers = answer()
    here = compile_text(job.text, job.symbol, HOST, None, {})
    assert here.packs
    assert asked(job, answers) == here
    assert asked(job, answers[:-1]) is None
    assert asked(job, answers[: -len(here.packs[-1].object)]) is None
