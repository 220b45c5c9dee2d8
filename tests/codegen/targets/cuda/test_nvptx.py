"""PTX from flat functions: what stands in it, and that NVIDIA's assembler takes it."""

from __future__ import annotations

import re

import pytest

from nestwright.codegen.targets.cuda import nvptx, ptxas
from nestwright.codegen.targets.cuda.ptxas import Usage
from nestwright.codegen.targets.registry import emit
from nestwright.ir.errors import TargetError, UnsupportedError, VerifyError
from nestwright.ir.loop.parser import parse
from nestwright.ir.target import Target

ARCHES = ("sm_80", "sm_90", "sm_100")


def ptx(text: str, arch: str = "sm_80") -> str:
    target = Target.parse(f"cuda -arch={arch}")
    return nvptx.compile(emit(parse(text), target), target)


def assembled(text: str) -> dict[str, Usage]:
    """What the kernels take on sm_80, once every architecture has taken them."""
    found = {}
    for arch in ARCHES:
        code = ptx(text, arch)
        if ptxas.find() is None:
            pytest.skip("no ptxas on this machine")
        found[arch] = ptxas.assemble(code, arch)
        assert not found[arch].warnings
    return dict(found["sm_80"].kernels)


def count(pattern: str, code: str) -> int:
    return len(re.findall(pattern, code))


AXPY = """
@func(outputs=1)
def axpy(X: f32[1048576], Y: f32[1048576]):
    for b in thread("blockIdx.x", 1024):
        for t in thread("threadIdx.x", 256):
            for v in vectorize(4):
                Y[b * 1024 + t * 4 + v] = X[b * 1024 + t * 4 + v] * f32(2.0)
"""


def test_neighbors_are_moved_sixteen_bytes_at_a_time() -> None:
    code = ptx(AXPY)
    assert count(r"ld\.global\.nc\.v4", code) == 1
    assert count(r"st\.global\.v4", code) == 1
    assert ".reqntid 256" in code
    assert assembled(AXPY)["axpy"].stack == 0


def test_blocks_that_shall_fit_together_bound_the_registers() -> None:
    text = AXPY.replace('"blockIdx.x", 1024', '"blockIdx.x", 1024, min_blocks=2')
    assert ".minnctapersm 2" in ptx(text)


TRANSPOSE = """
@func(outputs=1)
def transpose(X: f32[1048576], Y: f32[1048576]):
    for by in thread("blockIdx.y", 32):
        for bx in thread("blockIdx.x", 32):
            for ty in thread("threadIdx.y", 8):
                for tx in thread("threadIdx.x", 32):
                    S = alloc(f32[1056], scope="shared")
                    for k in unroll(4):
                        S[(ty + k * 8) * 33 + tx] = X[(by * 32 + ty + k * 8) * 1024 + bx * 32 + tx]
                    intrinsic("barrier")
                    for k in unroll(4):
                        Y[(bx * 32 + ty + k * 8) * 1024 + by * 32 + tx] = S[tx * 33 + ty + k * 8]
"""


def test_shared_memory_and_barriers() -> None:
    code = ptx(TRANSPOSE)
    assert count(r"st\.shared", code) == count(r"ld\.shared", code) == 4
    stores, barrier, loads = (code.index(x) for x in ("st.shared", "bar.sync", "ld.shared"))
    assert stores < barrier < loads
    assert code.index("nw_shared[]") > 0
    assert assembled(TRANSPOSE)["transpose"].shared == 0  # it is dynamic


def test_what_others_may_have_changed_is_read_again() -> None:
    code = ptx("""
@func(outputs=1)
def again(X: f32[64], Y: f32[64]):
    for t in thread("threadIdx.x", 64):
        S = alloc(f32[64], scope="shared")
        S[t] = X[t]
        for k in range(6):
            intrinsic("barrier")
            with let(f32, S[63 - t]) as other:
                intrinsic("barrier")
                S[t] = other + X[t]
        Y[t] = S[t]
""")
    loop = code[code.index("$L__BB0_1:") :]
    assert "ld.shared" in loop[: loop.index("bra")]


def test_what_threads_exchange_in_global_memory_is_not_promised_to_be_alone() -> None:
    """LLVM might move its loads over the barrier, or take them from before it."""
    text = """
@func(outputs=1)
def exchange(X: f32[64], Y: f32[64]):
    for t in thread("threadIdx.x", 64):
        Y[t] = X[t]
        intrinsic("barrier")
        with let(f32, Y[63 - t]) as other:
            intrinsic("barrier")
            Y[t] = other
"""
    code = emit(parse(text), Target.parse("cuda -arch=sm_80"))
    assert "ptr noalias readonly align 16 %p0, ptr align 16 %p1" in code


def test_warps_are_numbered_over_all_dimensions_of_a_block() -> None:
    text = """
@func(outputs=1)
def sums(X: f32[512], Y: f32[512]):
    for z in thread("threadIdx.z", 2):
        for y in thread("threadIdx.y", 4):
            for x in thread("threadIdx.x", 64):
                V = alloc(f32[1], scope="register")
                V[0] = X[z * 256 + y * 64 + x]
                all_reduce(64, V, lambda u, v: u + v)
                Y[z * 256 + y * 64 + x] = V[0]
"""
    code = emit(parse(text), Target.parse("cuda -arch=sm_80"))
    read = re.findall(r"(%\w+) = call range\(.*sreg\.tid\.([xyz])\(\)", code)
    x, y, z = (name for name, _ in sorted(read, key=lambda pair: pair[1]))
    (warp,) = re.findall(r"= lshr i32 (%\w+), 5", code)
    terms = {text: name for name, text in re.findall(r"(%\w+) = mul i32 (%\w+, \d+)", code)}
    sums = {name: text for name, text in re.findall(r"(%\w+) = add i32 (%\w+, %\w+)", code)}
    assert sums[warp].endswith(terms[f"{z}, 256"]), "4 rows of 64 threads"
    assert sums[sums[warp].split(",")[0]] == f"{x}, {terms[f'{y}, 64']}"


def reduction(threads: int, rows: int = 1, grid: int = 4) -> str:
    size = threads * rows * grid
    return f"""
@func(outputs=2)
def reduce(X: f32[{size}], Y: f32[{size}], Z: s32[{size}]):
    for b in thread("blockIdx.x", {grid}):
        for r in thread("threadIdx.y", {rows}):
            for t in thread("threadIdx.x", {threads}):
                V = alloc(f32[1], scope="register")
                W = alloc(s32[1], scope="register")
                at = let(s64, b * {threads * rows} + r * {threads} + t)
                V[0] = X[at]
                W[0] = cast(s32, t)
                all_reduce({threads}, V, W, lambda u, i, v, j: \
(select(u >= v, u, v), select(u >= v, i, j)))
                all_reduce({threads}, V, lambda u, v: u + v)
                Y[at] = V[0]
                Z[at] = W[0]
"""


@pytest.mark.parametrize("threads", [2, 32, 64, 256, 1024])
def test_reductions_across_threads(threads: int) -> None:
    code = ptx(reduction(threads))
    warps = threads // 32
    steps = min(threads, 32).bit_length() - 1
    across = warps.bit_length() - 1 if warps > 4 else 0
    assert count(r"shfl\.sync\.bfly\.b32", code) == 3 * (steps + across)
    assert count(r"bar\.sync", code) == (2 if warps > 1 else 0)
    assert assembled(reduction(threads))["reduce"].spill_stores == 0


def test_reductions_in_a_loop_keep_apart() -> None:
    code = ptx("""
@func(outputs=1)
def loop(X: f64[512], Y: f64[512]):
    for t in thread("threadIdx.x", 64):
        V = alloc(f64[1], scope="register")
        V[0] = X[t]
        for k in range(100):
            all_reduce(64, V, lambda u, v: max(u, v))
        Y[t] = V[0]
""")
    assert count(r"bar\.sync", code) == 2
    assert count(r"shfl\.sync\.bfly\.b32", code) == 10


def test_every_thread_gets_the_same_bits() -> None:
    code = ptx("""
@func(outputs=1)
def squares(X: f32[32], Y: f32[32]):
    for t in thread("threadIdx.x", 32):
        V = alloc(f32[1], scope="register")
        V[0] = X[t] * X[t]
        all_reduce(32, V, lambda u, v: u + v)
        Y[t] = V[0]
""")
    assert count(r"add\.rn\.f32", code) == 5
    assert "fma" not in code


@pytest.mark.parametrize("threads", [24, 48, 20])
def test_odd_numbers_of_threads_are_refused(threads: int) -> None:
    with pytest.raises(UnsupportedError, match="power of two"):
        ptx(reduction(threads))


PRODUCT = """
@func(outputs=1)
def product(A: {ab}[4096], B: {ab}[4096], C: {c}[128]):
    for t in thread("threadIdx.x", 32):
        SA = alloc({ab}[{tile_a}], scope="shared")
        SB = alloc({ab}[{tile_b}], scope="shared")
        RA = alloc(u32[4], scope="register")
        RB = alloc(u32[2], scope="register")
        RC = alloc({c}[4], scope="register")
        N = alloc(s32[1], scope="register")
        for i in unroll(4):
            RC[i] = {c}(0)
        for k in range(8):
            intrinsic("copy_async", writes(SA[t * {chunk} : t * {chunk} + {chunk}]), \
reads(A[k * {tile_a} + t * {chunk} : k * {tile_a} + t * {chunk} + {chunk}]), args(16))
            N[0] = cast(s32, select(t < 16, s64(16), s64(0)))
            intrinsic("copy_async_zfill", \
writes(SB[t % 16 * {chunk} : t % 16 * {chunk} + {chunk}]), \
reads(B[k * {tile_b} + t % 16 * {chunk} : k * {tile_b} + t % 16 * {chunk} + {chunk}], N[0]), \
args(16))
            intrinsic("commit_async")
            intrinsic("wait_async", args(0))
            intrinsic("barrier")
            intrinsic("ldmatrix.x4", writes(RA[0 : 4]), \
reads(SA[t % 16 * {row} + t // 16 * {chunk} : t % 16 * {row} + t // 16 * {chunk} + {chunk}]))
            intrinsic("ldmatrix.x2{turned}", writes(RB[0 : 2]), \
reads(SB[t % 8 * {row} + t // 8 % 2 * {chunk} : t % 8 * {row} + t // 8 % 2 * {chunk} + {chunk}]))
            intrinsic("mma.{mma}", writes(RC[0 : 4]), reads(RC[0 : 4], RA[0 : 4], RB[0 : 2]))
            intrinsic("warp_barrier")
        for i in unroll(4):
            C[t // 4 * 8 + i // 2 * 64 + t % 4 * 2 + i % 2] = RC[i]
"""


@pytest.mark.parametrize(
    ("ab", "c", "mma"),
    [
        ("f16", "f32", "m16n8k16.f16.f32"),
        ("bf16", "f32", "m16n8k16.bf16.f32"),
        ("f32", "f32", "m16n8k8.tf32.f32"),
        ("s8", "s32", "m16n8k32.s8.s32"),
    ],
)
def test_matrix_products(ab: str, c: str, mma: str) -> None:
    k = int(mma.partition("k")[2].partition(".")[0])
    chunk = k // 2
    turned = ".trans" if ab == "f16" else ""
    names = {"row": k, "tile_a": 16 * k, "tile_b": 8 * k, "chunk": chunk, "turned": turned}
    text = PRODUCT.format(ab=ab, c=c, mma=mma, **names)
    code = ptx(text)
    assert count(r"mma\.sync\.aligned\.m16n8", code) == 1
    assert count(r"ldmatrix\.sync\.aligned\.m8n8\.x4", code) == 1
    assert count(r"cp\.async\.cg\.shared\.global", code) == 2
    assert "local" not in code
    used = assembled(text)["product"]
    assert used.stack == used.spill_stores == 0


@pytest.mark.parametrize("arch", ["sm_89", "sm_90", "sm_120"])
@pytest.mark.parametrize(
    ("ab", "mma", "kinds"),
    [
        ("f8e4m3fn", "f8e4m3fn", "e4m3.e4m3"),
        ("f8e5m2", "f8e5m2", "e5m2.e5m2"),
        ("f8e5m2", "f8e5m2.f8e4m3fn", "e5m2.e4m3"),
    ],
)
def test_products_of_bytes_of_floats(arch: str, ab: str, mma: str, kinds: str) -> None:
    """By no intrinsic, since LLVM 20 has none, and by the PTX version that first has them."""
    sizes = {"row": 32, "tile_a": 512, "tile_b": 256, "chunk": 16, "turned": ""}
    text = PRODUCT.format(ab=ab, c="f32", mma=f"m16n8k32.{mma}.f32", **sizes)
    target = Target.parse(f"cuda -arch={arch}")
    assert "llvm.nvvm.mma" not in emit(parse(text), target)
    code = ptx(text, arch)
    assert f"mma.sync.aligned.m16n8k32.row.col.f32.{kinds}.f32 " in code
    assert f".version 8.{7 if arch == 'sm_120' else 4}\n" in code
    if ptxas.find() is not None:
        assert not ptxas.assemble(code, arch).warnings


def test_an_older_architecture_lacks_them() -> None:
    text = PRODUCT.format(
        ab="f16",
        c="f32",
        mma="m16n8k16.f16.f32",
        row=16,
        tile_a=256,
        tile_b=128,
        chunk=8,
        turned="",
    )
    with pytest.raises(UnsupportedError, match="sm_80"):
        ptx(text, "sm_75")


def test_indices_of_lanes_have_32_bits() -> None:
    code = ptx("""
@func(outputs=1)
def padded(X: f32[4800], Y: f32[4864]):
    for b in thread("blockIdx.x", 38):
        for t in thread("threadIdx.x", 32):
            for v in vectorize(4):
                Y[b * 128 + t * 4 + v] = select((b * 32 + t) % 19 * 4 + v < 75, \
X[(b * 32 + t) // 19 * 75 + min((b * 32 + t) % 19 * 4 + v, 74)], f32(0.0))
""")
    assert count(r"setp\.\w+\.[su]32", code) and not count(r"setp\.\w+\.[su]64", code)
    assert not count(r"(?:min|max|div|rem)\.[su]64", code)


def test_small_indices_have_32_bits() -> None:
    code = ptx("""
@func(outputs=1)
def rows(X: f32[98304], P: s32[96], Y: f32[98304]):
    for b in thread("blockIdx.x", 96):
        for t in thread("threadIdx.x", 32):
            for k in range(t % 7 + 1):
                at = let(s64, min(cast(s64, P[b]) * 3 + k * 5, 1020))
                Y[b * 1024 + (t * 3 + k) // 7 * 7 % 1024] = X[at + (b * 32 + t) // 48 % 5]
""")
    wide = re.findall(r"^\s+(?!ld|cvta|mul\.wide|add\.s64|mov)\w[\w.]*\.[su]64", code, re.MULTILINE)
    assert len(wide) <= 1, wide


def test_bf16_is_computed_in_pairs() -> None:
    code = ptx("""
@func(outputs=1)
def scale(X: bf16[2048], Y: bf16[2048]):
    for t in thread("threadIdx.x", 256):
        for v in vectorize(8):
            Y[t * 8 + v] = X[t * 8 + v] * X[t * 8 + v] + X[t * 8 + v]
""")
    assert count(r"fma\.rn\.bf16x2", code) == 4
    assert count(r"ld\.global\.nc\.v4\.b32", code) == 1


def test_llvm_dies_alone() -> None:
    target = Target.parse("cuda -arch=sm_80")
    head = "define ptx_kernel void @k(ptr %p, float %x) {\n"
    tail = "  store float %y, ptr %p\n  ret void\n}\ndeclare float @llvm.NAME.f32(float)\n"
    for name, why in (("exp", "gave up"), ("erf", "has no PTX")):
        text = head + f"  %y = call float @llvm.{name}.f32(float %x)\n" + tail.replace("NAME", name)
        with pytest.raises(UnsupportedError, match=rf"kernel k.*{why}"):
            nvptx.compile(text, target)
    with pytest.raises(VerifyError, match="undefined value"):
        nvptx.compile(head + tail, target)
    assert "st.global" in ptx(AXPY)  # the next child is well


def test_a_child_that_died_while_it_was_idle_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    good = ptx(AXPY)
    child = nvptx._pool.free.queue[-1]
    child.process.kill()
    child.process.wait()
    monkeypatch.setattr(child.process, "poll", lambda: None)  # it dies after this was asked
    assert ptx(AXPY) == good
    monkeypatch.setattr(nvptx, "__package__", "nowhere")  # no child starts
    child.stop()
    with pytest.raises(UnsupportedError, match=r"kernel axpy.*LLVM gave up"):
        ptx(AXPY)


def test_an_interrupted_job_leaves_no_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    good = ptx(AXPY)

    def loads(line: bytes) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(nvptx.json, "loads", loads)
    with pytest.raises(KeyboardInterrupt):
        ptx(TRANSPOSE)
    monkeypatch.undo()
    assert ptx(AXPY) == good


def test_every_architecture_has_a_ptx_version() -> None:
    from nestwright.ir.gpus import GPUS

    for arch in GPUS:
        assert f".target {arch}\n" in ptx(AXPY, arch)


def test_an_llvm_that_is_too_old_is_found_out() -> None:
    nvptx._check_version(ptx(AXPY, "sm_90"), "sm_90", "+ptx80")
    with pytest.raises(TargetError, match="upgrade llvmlite"):
        nvptx._check_version(ptx(AXPY), "sm_90", "+ptx80")


def test_the_assembler_tells_what_is_wrong() -> None:
    if ptxas.find() is None:
        pytest.skip("no ptxas on this machine")
    with pytest.raises(UnsupportedError, match=r"kernel axpy.*refuses"):
        ptxas.assemble(ptx(AXPY).replace("add.s64", "no.s64"), "sm_80")
