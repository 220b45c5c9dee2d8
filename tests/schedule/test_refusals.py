"""What may not be done: each refusal names the reason, shows the nest and says what would work."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nestwright.ir.errors import NestwrightError
from nestwright.ir.loop.parser import parse
from nestwright.schedule.cursor import LoopRef
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.language.schedule import Schedule

MATMUL = """\
@func(outputs=1)
def matmul(A: f32[6, 4], B: f32[4, 8], D: f32[6, 8]):
    C = alloc(f32[6, 8])
    for i in range(6):
        for j in range(8):
            for k in range(4):
                with block("C"):
                    vi, vj, vk = spatial(6, i), spatial(8, j), reduce(4, k)
                    reads(C[vi, vj], A[vi, vk], B[vk, vj])
                    writes(C[vi, vj])
                    with init():
                        C[vi, vj] = f32(0.0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for y in range(6):
        for x in range(8):
            with block("D"):
                vy, vx = spatial(6, y), spatial(8, x)
                reads(C[vy, vx])
                writes(D[vy, vx])
                D[vy, vx] = max(C[vy, vx], f32(0.0))
"""

TWO_USERS = """\
@func(outputs=2)
def two(A: f32[6], C: f32[6], D: f32[6]):
    B = alloc(f32[6])
    for i in range(6):
        with block("B"):
            vi = spatial(6, i)
            reads(A[vi])
            writes(B[vi])
            B[vi] = A[vi] + f32(1.0)
    for j in range(6):
        with block("C"):
            vj = spatial(6, j)
            reads(B[vj])
            writes(C[vj])
            C[vj] = B[vj] * f32(2.0)
    for k in range(6):
        with block("D"):
            vk = spatial(6, k)
            reads(B[5 - vk])
            writes(D[vk])
            D[vk] = B[5 - vk]
"""

LAST = """\
@func(outputs=1)
def last(A: f32[4, 6], L: f32[4]):
    for i in range(4):
        for k in range(6):
            with block("L"):
                vi, vk = spatial(4, i), reduce(6, k)
                reads(L[vi], A[vi, vk])
                writes(L[vi])
                with init():
                    L[vi] = f32(0.0)
                L[vi] = A[vi, vk] - L[vi]
"""

SHIFTED = """\
@func(outputs=1)
def shifted(A: f32[6], D: f32[6]):
    B = alloc(f32[7])
    C = alloc(f32[6])
    for i in range(6):
        with block("B"):
            vi = spatial(6, i)
            reads(A[vi])
            writes(B[vi + 1])
            B[vi + 1] = A[vi] * f32(2.0)
    for j in range(6):
        with block("C"):
            vj = spatial(6, j)
            reads(B[vj + 1])
            writes(C[vj])
            C[vj] = B[vj + 1]
    for k in range(6):
        with block("D"):
            vk = spatial(6, k)
            reads(C[vk], C[5 - vk])
            writes(D[vk])
            D[vk] = C[vk] + C[5 - vk]
"""

PARTS = """\
@func(outputs=1)
def parts(A: f32[12], D: f32[12]):
    C = alloc(f32[12])
    for i in range(3):
        with block("last"):
            vi = spatial(3, i)
            reads(A[vi * 4 + 3])
            writes(C[vi * 4 + 3])
            C[vi * 4 + 3] = A[vi * 4 + 3] * f32(3.0)
    for y in range(3):
        for x in range(4):
            with block("C"):
                vx = spatial(12, y * 4 + x)
                where(x < 3)
                reads(A[vx])
                writes(C[vx])
                C[vx] = A[vx] * f32(2.0)
    for k in range(12):
        with block("D"):
            vk = spatial(12, k)
            reads(C[vk])
            writes(D[vk])
            D[vk] = C[vk]
"""

SCATTER = """\
@func(outputs=1)
def scatter(A: f32[4], S: f32[4]):
    for i in range(4):
        with block("S", opaque=1):
            vi = reduce(4, i)
            reads(A[vi])
            writes(S[vi])
            S[vi] = A[vi]
"""


def c_loops(sch: Schedule) -> list[LoopRef]:
    return sch.get_loops("C")


def split_tail(sch: Schedule) -> None:
    sch.split(c_loops(sch)[0], [2, 2])


def split_holes(sch: Schedule) -> None:
    sch.split(c_loops(sch)[0], [None, None])


def split_into_many(sch: Schedule) -> None:
    sch.split(c_loops(sch)[0], [None, *(1 for _ in range(16))])


def split_into_none(sch: Schedule) -> None:
    sch.split(c_loops(sch)[0], [])


def inline_shifted(sch: Schedule) -> None:
    sch.compute_inline("B")


def inline_into_other_places(sch: Schedule) -> None:
    sch.reverse_compute_inline("D")


def merge_over_its_source(sch: Schedule) -> None:
    sch.merge(sch.get_loops("B")[0], sch.get_loops("D")[0])


def merge_with_other_places(sch: Schedule) -> None:
    sch.merge(sch.get_loops("C")[0], sch.get_loops("D")[0])


def merge_backwards(sch: Schedule) -> None:
    sch.merge(sch.get_loops("D")[0], sch.get_loops("C")[0])


def reverse_compute_at_one_of_two_sources(sch: Schedule) -> None:
    """The loop's iterations do not provide every point of the block."""
    sch.reverse_compute_at("D", c_loops(sch)[0])


def split_zero(sch: Schedule) -> None:
    sch.split(c_loops(sch)[0], [None, 0])


def split_parallel(sch: Schedule) -> None:
    i = c_loops(sch)[0]
    sch.parallel(i)
    sch.split(i, [None, 2])


def fuse_backwards(sch: Schedule) -> None:
    i, j, _ = c_loops(sch)
    sch.fuse(j, i)


def fuse_kinds(sch: Schedule) -> None:
    _, j, k = c_loops(sch)
    sch.fuse(j, k)


def reorder_apart(sch: Schedule) -> None:
    sch.reorder(c_loops(sch)[0], sch.get_loops("D")[0])


def reorder_across(sch: Schedule) -> None:
    y, _ = sch.get_loops("D")
    sch.compute_at("C", y)
    sch.reorder(sch.get_loops("C")[1], y)


def reorder_into_reduction(sch: Schedule) -> None:
    """C alone under a loop that only repeats it."""
    _, x = sch.get_loops("D")
    sch.cache_read("D", 0)
    sch.compute_at("C_cache", x)
    sch.compute_at("C", x)
    sch.reorder(sch.get_loops("C")[2], x)


def reorder_updates(sch: Schedule) -> None:
    _, k = sch.get_loops("L")
    a, b = sch.split(k, [2, 3])
    sch.reorder(b, a)


def parallel_reduction(sch: Schedule) -> None:
    sch.parallel(c_loops(sch)[2])


def parallel_nested(sch: Schedule) -> None:
    i, j, _ = c_loops(sch)
    sch.parallel(i)
    sch.parallel(j)


def vectorize_large(sch: Schedule) -> None:
    sch.vectorize(sch.fuse(*sch.get_loops("D")))


def vectorize_updates(sch: Schedule) -> None:
    sch.vectorize(sch.get_loops("L")[1])


def unroll_gone(sch: Schedule) -> None:
    i = c_loops(sch)[0]
    sch.split(i, [2, 3])
    sch.unroll(i)


def compute_at_output(sch: Schedule) -> None:
    sch.compute_at("D", c_loops(sch)[0])


def compute_at_far(sch: Schedule) -> None:
    sch.compute_at("B", sch.get_loops("C")[0])


def compute_at_itself(sch: Schedule) -> None:
    sch.compute_at("C", c_loops(sch)[0])


def compute_at_update(sch: Schedule) -> None:
    sch.decompose_reduction("C", c_loops(sch)[2])
    sch.compute_at("C", sch.get_loops("D")[0])


def reverse_compute_at_reduction(sch: Schedule) -> None:
    sch.reverse_compute_at("D", c_loops(sch)[2])


def reverse_compute_at_other(sch: Schedule) -> None:
    sch.reverse_compute_at("D", sch.get_loops("C")[0])


def inline_reduction(sch: Schedule) -> None:
    sch.compute_inline("C")


def reverse_inline_into_reduction(sch: Schedule) -> None:
    sch.reverse_compute_inline("D")


def cache_read_beyond(sch: Schedule) -> None:
    sch.cache_read("C", 3)


def scope_of_output(sch: Schedule) -> None:
    sch.set_scope("D", 0, "register")


def decompose_inside(sch: Schedule) -> None:
    i, _, k = c_loops(sch)
    sch.reorder(k, i)
    sch.decompose_reduction("C", i)


def decompose_twice(sch: Schedule) -> None:
    sch.decompose_reduction("C", c_loops(sch)[0])
    sch.decompose_reduction("C", c_loops(sch)[2])


def rfactor_spatial(sch: Schedule) -> None:
    sch.rfactor(c_loops(sch)[0])


def rfactor_updates(sch: Schedule) -> None:
    sch.rfactor(sch.get_loops("L")[1])


def layout_order(sch: Schedule) -> None:
    sch.transform_layout("C", 0, [0, 0])


def opaque_vectorize(sch: Schedule) -> None:
    sch.vectorize(sch.get_loops("S")[0])


CASES: list[tuple[str, Callable[[Schedule], None]]] = [
    *(
        (MATMUL, f)
        for f in (
            split_tail,
            split_holes,
            split_zero,
            split_into_many,
            split_into_none,
            split_parallel,
            fuse_backwards,
            fuse_kinds,
            reorder_apart,
            reorder_across,
            parallel_reduction,
            parallel_nested,
            unroll_gone,
            compute_at_output,
            compute_at_itself,
            compute_at_update,
            reverse_compute_at_reduction,
            inline_reduction,
            reverse_inline_into_reduction,
            cache_read_beyond,
            scope_of_output,
            decompose_inside,
            decompose_twice,
            rfactor_spatial,
            layout_order,
        )
    ),
    *((SHIFTED, f) for f in (inline_shifted, inline_into_other_places, merge_over_its_source)),
    (PARTS, reverse_compute_at_one_of_two_sources),
    *((SHIFTED, f) for f in (merge_with_other_places, merge_backwards)),
    *((TWO_USERS, f) for f in (compute_at_far, reverse_compute_at_other)),
    *((LAST, f) for f in (reorder_updates, vectorize_updates, rfactor_updates)),
    (SCATTER, opaque_vectorize),
]


@pytest.mark.parametrize(("text", "ask"), CASES, ids=[f.__name__ for _, f in CASES])
def test_refused(text: str, ask: Callable[[Schedule], None], golden: Any) -> None:
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError) as e:
        ask(sch)
    assert isinstance(e.value, NestwrightError)
    golden.check(f"{e.value}\n")


def test_a_refusal_changes_nothing() -> None:
    sch = Schedule(parse(MATMUL))
    i, j, k = sch.get_loops("C")
    func, steps = sch.func, sch.trace.steps
    with pytest.raises(ScheduleError):
        sch.tile(i, k, 2, 0)
    assert sch.func is func
    assert sch.trace.steps == steps
    sch.fuse(i, j)


def test_a_refusal_crosses_processes() -> None:
    sch = Schedule(parse(MATMUL))
    with pytest.raises(ScheduleError) as e:
        sch.parallel(sch.get_loops("C")[2])
    again = pickle.loads(pickle.dumps(e.value))
    assert str(again) == str(e.value)


def test_unknown_block_lists_the_blocks() -> None:
    sch = Schedule(parse(MATMUL))
    with pytest.raises(ScheduleError, match="blocks: C, D"):
        sch.get_loops("E")


def test_large_extents() -> None:
    sch = Schedule(parse(TWO_USERS.replace("[6]", "[3000]").replace("(6", "(3000")))
    (i,) = sch.get_loops("B")
    with pytest.raises(ScheduleError, match="more than 1024"):
        sch.vectorize(i)
    with pytest.raises(ScheduleError, match="more than 1024"):
        sch.unroll(i)


def test_opaque_blocks_take_notes() -> None:
    sch = Schedule(parse(SCATTER))
    sch.annotate("S", "reason", "duplicate indices")
    assert sch.block("S").notes["reason"] == "duplicate indices"
    with pytest.raises(ScheduleError):
        sch.unannotate("S", "opaque")


STRIPS = """\
@func(outputs=1)
def strips(A: f32[32], S: f32[32]):
    for i in range(4):
        with block("S", opaque=1):
            vi = spatial(4, i)
            reads(A[vi * 8 : vi * 8 + 8])
            writes(S[vi * 8 : vi * 8 + 8])
            for j in range(8):
                S[vi * 8 + j] = A[vi * 8 + j]
"""


def test_threads_write_strips_that_do_not_overlap() -> None:
    apart = Schedule(parse(STRIPS))
    apart.parallel(apart.get_loops("S")[0])
    near = STRIPS.replace("vi * 8", "vi * 7")
    overlapping = Schedule(parse(near))
    with pytest.raises(ScheduleError, match="may access the same element of `S`"):
        overlapping.parallel(overlapping.get_loops("S")[0])


AGAIN = """\
@func(outputs=1)
def again(A: f32[8], C: f32[8]):
    for n in range(4):
        for i in range(8):
            with block("C"):
                vi = spatial(8, i)
                reads(A[vi])
                writes(C[vi])
                C[vi] = A[vi]
"""


def test_a_loop_that_writes_the_same_again_is_for_one_thread() -> None:
    sch = Schedule(parse(AGAIN))
    turn, elements = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="may write the same element of `C`"):
        sch.parallel(turn)
    sch.parallel(elements)


FILES = sorted((Path(__file__).parents[2] / "schedule").rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda p: p.stem)
def test_every_refusal_has_a_hint(file: Path) -> None:
    """``Reason`` is not made without one, and errors that are raised directly have one too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            named = {k.arg: k.value for k in node.keywords}
            if node.func.id == "ScheduleError":
                assert len(node.args) > 3 or "hint" in named, f"line {node.lineno}"
            hint = named.get("hint")
            assert not isinstance(hint, ast.Constant) or hint.value, f"line {node.lineno}"


GOLDEN = sorted((Path(__file__).parents[1] / "golden/schedule").glob("test_refused-*.txt"))


@pytest.mark.parametrize("file", GOLDEN, ids=lambda p: p.stem)
def test_every_golden_refusal_ends_with_a_hint(file: Path) -> None:
    assert file.read_text().splitlines()[-1].startswith("  hint: ")


@pytest.mark.parametrize("key", ["pipelin", "minblocks", "asynch", "opaq"])
def test_a_misspelt_note_is_not_silent(key: str) -> None:
    sch = Schedule(parse(MATMUL))
    with pytest.raises(ScheduleError, match="did you mean `"):
        sch.annotate("C", key, 1)
    sch.annotate("C", "stage", 1)
