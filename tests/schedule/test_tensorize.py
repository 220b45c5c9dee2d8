"""tensorize: a nest on a box becomes an intrinsic, or the refusal says what does not fit."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from nestwright.ir.dtypes import to_numpy
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func, Intrinsic
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import equal, walk
from nestwright.schedule.cursor import LoopRef
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule, Trace

MATMUL = """\
@func(outputs=1)
def matmul(A: f16[32, 40], B: f16[40, 24], C: f32[32, 24]):
    for i in range(32):
        for j in range(24):
            for k in range(40):
                with block("C"):
                    vi, vj, vk = spatial(32, i), spatial(24, j), reduce(40, k)
                    reads(C[vi, vj], A[vi, vk], B[vk, vj])
                    writes(C[vi, vj])
                    with init():
                        C[vi, vj] = f32(0.0)
                    C[vi, vj] = C[vi, vj] + cast(f32, A[vi, vk]) * cast(f32, B[vk, vj])
"""
DEPTH = {"f16": 16, "bf16": 16, "f32": 8, "s8": 32}
CORE = {
    "f16": "mma.m16n8k16.f16.f32",
    "bf16": "mma.m16n8k16.bf16.f32",
    "f32": "mma.m16n8k8.tf32.f32",
    "s8": "mma.m16n8k32.s8.s32",
}


def typed(dtype: str) -> Func:
    text = MATMUL.replace("f16", dtype)
    if dtype == "s8":
        text = text.replace("f32", "s32").replace("0.0", "0")
    if dtype == "f32":
        text = text.replace("cast(f32, A[vi, vk])", "A[vi, vk]")
        text = text.replace("cast(f32, B[vk, vj])", "B[vk, vj]")
    return parse(text)


class Tiles:
    """A product by tiles of a warp, ready for tensorize, and the loops that it is due at."""

    def __init__(
        self, func: Func, layouts: tuple[str, str] = ("mk", "kn"), depth: int = 16
    ) -> None:
        self.func = func
        self.sch = sch = Schedule(func)
        a, b, _ = sch.to_matmul("C", (16, 16, depth), layouts)
        sch.set_scope("C", 0, "shared")
        store = sch.cache_write("C", 0, "warp")
        *_, m, n = sch.get_loops(store)
        self.at = {"store_matrix": self.box(m, n, 16, 8)}
        m, n, k = sch.get_loops("C")
        m, mi = sch.split(m, [None, 16])
        n, ni = sch.split(n, [None, 8])
        k, ki = sch.split(k, [None, depth])
        sch.reorder(m, n, k, mi, ni, ki)
        self.k = k
        self.at["mma"] = mi
        for x, operand, layout in ((a, 1, layouts[0]), (b, 2, layouts[1])):
            sch.set_scope(x, 0, "shared")
            copy = sch.cache_read("C", operand, "warp")
            rows = (16, depth) if layout[1] == "k" else (depth, 16)
            name = "load_matrix_a" if operand == 1 else "load_matrix_b"
            self.at[name] = self.box(*sch.get_loops(copy), *rows)

    def box(self, i: LoopRef, j: LoopRef, rows: int, columns: int) -> LoopRef:
        return self.sch.tile(i, j, rows, columns)[2]

    def start(self) -> LoopRef:
        init = self.sch.decompose_reduction("C", self.k)
        return self.sch.get_loops(init)[-2]

    def refused(self, loop: LoopRef, name: str) -> str:
        before = self.sch.func
        with pytest.raises(ScheduleError) as caught:
            self.sch.tensorize(loop, name)
        assert self.sch.func is before
        return str(caught.value)

    def check(self) -> None:
        verify(self.sch.func)
        rng = np.random.default_rng(1)
        buffers = self.func.params[:2]
        args = [rng.integers(-4, 5, b.shape).astype(to_numpy(b.dtype)) for b in buffers]
        (want,), (got,) = run(self.func, args), run(self.sch.func, args)
        np.testing.assert_array_equal(got, want)
        again = Trace.from_json(json.loads(json.dumps(self.sch.trace.to_json()))).replay(self.func)
        assert equal(again.func, self.sch.func)


def calls(func: Func) -> Iterator[Intrinsic]:
    return (s for s in walk(func.body) if isinstance(s, Intrinsic))


@pytest.mark.parametrize("dtype", CORE)
@pytest.mark.parametrize("layouts", [("mk", "kn"), ("mk", "nk"), ("km", "kn"), ("km", "nk")])
def test_a_product_by_warps(dtype: str, layouts: tuple[str, str]) -> None:
    t = Tiles(typed(dtype), layouts, DEPTH[dtype])
    t.sch.tensorize(t.start(), "zero_matrix")
    t.sch.tensorize(t.at.pop("mma"), CORE[dtype])
    for name, loop in t.at.items():
        t.sch.tensorize(loop, name)
    t.check()
    args = {s.name: s.args for s in calls(t.sch.func)}
    turned = int(layouts[0] == "km"), int(layouts[1] == "kn")
    assert args[CORE[dtype]] == turned
    assert (args["load_matrix_a"], args["load_matrix_b"]) == ((turned[0],), (turned[1],))


def test_before_and_after() -> None:
    t = Tiles(typed("f16"))
    t.start()
    t.sch.tensorize(t.at["mma"], CORE["f16"])
    (line,) = (x.strip() for x in show(t.sch.func).splitlines() if "reduce(3, k_tile)" in x)
    assert line.endswith(
        "spatial(1, 0), spatial(2, m_tile_1), spatial(4, n_tile_1), reduce(3, k_tile)"
    )
    (call,) = calls(t.sch.func)
    assert [str(r.buffer) for r in call.reads] == ["C_c_cache", "C_a_cache", "C_b_cache"]
    assert call.args == (0, 1)


def test_what_does_not_fit_is_said() -> None:
    t = Tiles(typed("f16"))
    assert "unknown intrinsic 'mma'" in t.refused(t.at["mma"], "mma")
    assert "unknown intrinsic 'barrier' for tiles" in t.refused(t.at["mma"], "barrier")
    assert "has an init" in t.refused(t.at["mma"], CORE["f16"])
    first = t.start()
    assert "bf16[16, 16] in warp" in t.refused(t.at["mma"], CORE["bf16"])
    assert "is not a copy" in t.refused(first, "store_matrix")
    assert "does not store 0" in t.refused(t.at["store_matrix"], "zero_matrix")
    assert "is not an update" in t.refused(first, CORE["f16"])
    assert "as its left operand" in t.refused(t.at["load_matrix_b"], "load_matrix_a")
    assert "it writes f32|s32[16, 8]" in t.refused(t.at["load_matrix_a"], "store_matrix")
    assert "does not run along" not in t.refused(t.k, CORE["f16"])


def test_where_it_may_not_stand() -> None:
    t = Tiles(typed("f16"))
    m = t.sch.get_loops("C_c_store")[0]
    t.sch.bind(m, "threadIdx.x")
    assert "bound to threadIdx.x" in t.refused(t.at["store_matrix"], "store_matrix")
    t = Tiles(typed("f16"))
    t.sch.vectorize(t.sch.get_loops("C_c_store")[-1])
    assert "vectorized" in t.refused(t.at["store_matrix"], "store_matrix")


def test_boxes_start_at_multiples_of_themselves() -> None:
    text = """\
@func(outputs=1)
def copy(A: f32[32, 8], C: f32[32, 8]):
    for i in range(3):
        for j in range(16):
            for k in range(8):
                with block("C"):
                    vi, vk = spatial(32, i * 8 + j), spatial(8, k)
                    reads(A[vi, vk])
                    writes(C[vi, vk])
                    C[vi, vk] = A[vi, vk]
"""
    sch = Schedule(parse(text))
    _, j, _ = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="does not start at multiples of 16"):
        sch.tensorize(j, "store_matrix")
    sch = Schedule(parse(text.replace("i * 8 + j", "i * 16 + j * 2").replace("[32", "[99")))
    with pytest.raises(ScheduleError, match="does not step by one"):
        sch.tensorize(sch.get_loops("C")[1], "store_matrix")


def test_guards_must_go() -> None:
    sch = Schedule(parse(MATMUL.replace("32", "20").replace("f20", "f32")))
    sch.cache_write("C", 0, "warp")
    i, j = sch.get_loops("C_store")
    box = sch.tile(i, j, 16, 8)[2]
    with pytest.raises(ScheduleError, match="is guarded"):
        sch.tensorize(box, "store_matrix")
