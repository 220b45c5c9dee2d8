"""Fused launches: flat functions side by side mean what they mean one by one, without a race."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nestwright.codegen.driver.kernel import Kernel, compile_flat
from nestwright.codegen.lower.gpu.horizontal_fusion import fuse_functions, may_fuse, shapes
from nestwright.codegen.targets.registry import lower
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Func
from nestwright.ir.loop.parser import parse
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.target import Target

TURN = """\
@func(outputs=1)
def turn(A: f32[12, 20], C: f32[20, 12]):
    S = alloc(f32[4, 4], scope="shared")
    for i in thread("blockIdx.y", 3):
        for j in thread("blockIdx.x", 5):
            for y in thread("threadIdx.y", 4):
                for x in thread("threadIdx.x", 4):
                    with block("S"):
                        vi, vj = spatial(12, i * 4 + y), spatial(20, j * 4 + x)
                        reads(A[vi, vj])
                        writes(S[vi % 4, vj % 4])
                        S[vi % 4, vj % 4] = A[vi, vj]
            for y2 in thread("threadIdx.y", 4):
                for x2 in thread("threadIdx.x", 4):
                    with block("C"):
                        wi, wj = spatial(12, i * 4 + x2), spatial(20, j * 4 + y2)
                        reads(S[wi % 4, wj % 4])
                        writes(C[wj, wi])
                        C[wj, wi] = S[wi % 4, wj % 4]
"""
TWICE = """\
@func(outputs=1)
def twice(A: f32[48], C: f32[48]):
    T = alloc(f32[48])
    for i in thread("blockIdx.x", 3):
        for y in thread("threadIdx.y", 4):
            for x in thread("threadIdx.x", 4):
                with block("T"):
                    vi = spatial(48, i * 16 + y * 4 + x)
                    reads(A[vi])
                    writes(T[vi])
                    T[vi] = A[vi] + A[vi]
    for i2 in thread("blockIdx.x", 3):
        for y2 in thread("threadIdx.y", 4):
            for x2 in thread("threadIdx.x", 4):
                with block("C"):
                    wi = spatial(48, i2 * 16 + y2 * 4 + x2)
                    reads(T[47 - wi])
                    writes(C[wi])
                    C[wi] = T[47 - wi]
"""


def flat(text: str, target: Target) -> Func:
    return lower(parse(text), target)


def together(target: Target, *texts: str) -> tuple[list[Func], Func]:
    parts = [flat(t, target) for t in texts]
    made = fuse_functions(parts, "joint", target)
    verify(made, on_threads=True)
    return parts, made


@pytest.mark.parametrize("texts", [(TURN, TWICE), (TWICE, TURN, TWICE), (TURN, TURN)])
def test_a_joint_function_means_what_its_parts_mean(
    texts: tuple[str, ...], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, made = together(target, *texts)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(p.params[0].shape).astype(np.float32) for p in parts]
    expected = [run(p, [a])[0] for p, a in zip(parts, args, strict=True)]
    for seed in range(3):
        monkeypatch.setenv("NESTWRIGHT_SIM_SEED", str(seed))
        for got in (run(made, args, check_races=True, seed=seed), kernel(made, target, args)):
            for a, b in zip(expected, got, strict=True):
                np.testing.assert_array_equal(np.asarray(b), np.asarray(a))


def kernel(made: Func, target: Target, args: list[np.ndarray]) -> tuple[np.ndarray, ...]:  # type: ignore[type-arg]
    results: tuple[np.ndarray, ...] = Kernel(compile_flat(made, target))(*args)  # type: ignore[type-arg]
    return results


def test_each_part_has_its_own_blocks(target: Target) -> None:
    _, made = together(target, TURN, TWICE)
    text = show(made)
    assert 'thread("blockIdx.x", 18)' in text and "if bx < 15:" in text
    assert text.count('thread("blockIdx.x"') == 2  # the second launch of `twice` is alone
    assert text.count('S = alloc(f32[16], scope="shared")') == 1
    assert [s.blocks for s in shapes(made)] == [18, 3]


def test_a_workspace_is_not_shared(target: Target) -> None:
    part, made = together(target, TWICE, TWICE)
    assert made.notes["workspace_bytes"] == 2 * int(str(part[0].notes["workspace_bytes"]))


def test_threads_of_a_larger_block_have_nothing_to_do(target: Target) -> None:
    """A row of three threads beside one of 16, in blocks of 16."""
    small, large = (LINE.replace("%d", str(n)) for n in (3, 16))
    parts, made = together(target, small, large, small)
    assert may_fuse([shapes(p) for p in parts], target.gpu)
    assert shapes(made)[0].block == (16, 1, 1) and "if tx < 3:" in show(made)
    args = [np.arange(p.params[0].shape[0], dtype=np.float32) for p in parts]
    for got in (run(made, args, check_races=True, seed=1), kernel(made, target, args)):
        for a, b in zip(args, got, strict=True):
            np.testing.assert_array_equal(np.asarray(b), a + a)


def test_threads_beyond_a_part_are_off_in_every_dimension(target: Target) -> None:
    """A row of 16 threads, and blocks of 4 by 2, beside blocks of 4 by 4."""
    row, narrow = LINE.replace("%d", "16"), TWICE.replace('"threadIdx.x", 4', '"threadIdx.x", 2')
    narrow = narrow.replace("* 16 + y * 4", "* 8 + y * 2").replace("* 16 + y2 * 4", "* 8 + y2 * 2")
    narrow = narrow.replace('"blockIdx.x", 3', '"blockIdx.x", 6')
    parts, made = together(target, row, narrow, TWICE)
    assert shapes(made)[0].block == (16, 4, 1)
    args = [np.arange(p.params[0].shape[0], dtype=np.float32) for p in parts]
    expected = [run(p, [a])[0] for p, a in zip(parts, args, strict=True)]
    for got in (run(made, args, check_races=True, seed=1), kernel(made, target, args)):
        for a, b in zip(expected, got, strict=True):
            np.testing.assert_array_equal(np.asarray(b), np.asarray(a))


LINE = """\
@func(outputs=1)
def line(A: f32[%d], C: f32[%d]):
    for i in thread("blockIdx.x", 1):
        for x in thread("threadIdx.x", %d):
            with block("C"):
                vi = spatial(%d, i + x)
                reads(A[vi])
                writes(C[vi])
                C[vi] = A[vi] + A[vi]
"""


def test_what_does_not_fit(target: Target) -> None:
    gpu = target.gpu
    turn, twice = (shapes(flat(t, target)) for t in (TURN, TWICE))
    assert may_fuse([turn, turn], gpu) and may_fuse([twice, twice], gpu)
    assert may_fuse([turn, twice], gpu)  # few enough blocks for what shared memory they get
    wide = shapes(flat(TWICE.replace('"threadIdx.x", 4', '"threadIdx.x", 2'), target))
    assert may_fuse([twice, wide], gpu) and may_fuse([turn, wide], gpu)
    assert not may_fuse([tuple(replace(s, block=(8, 8, 1)) for s in wide), turn], gpu)  # it waits
    many = tuple(replace(s, blocks=1 << 20) for s in twice)
    assert may_fuse([many, twice], gpu) and not may_fuse([many, turn], gpu)
    noted = tuple(replace(s, notes=(("min_blocks", 2),)) for s in twice)
    assert not may_fuse([noted, twice], gpu) and may_fuse([noted, noted], gpu)
    line = replace(twice[0], block=(64, 1, 1))
    assert may_fuse([[line], [replace(line, block=(32, 1, 1))]], gpu)
    assert not may_fuse([[line], [replace(line, block=(32, 1, 1), exchanges=True)]], gpu)
    assert not may_fuse([[line], [replace(line, block=(32, 1, 1), blocks=1 << 20)]], gpu)
    across, down = (replace(line, block=b) for b in ((512, 1, 1), (1, 4, 1)))
    assert not may_fuse([[across], [down]], gpu)  # 2048 threads
