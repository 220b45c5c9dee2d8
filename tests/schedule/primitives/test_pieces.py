"""The primitive in_pieces: results and their error, which pairs are multiplied, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz.loops import two_products

from nestwright.ir.arrays import Array
from nestwright.ir.dtypes import bf16
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.interp.evaluate import run
from nestwright.ir.loop.nodes import Const, Func, Var
from nestwright.ir.loop.notes import EXCESS_ERROR
from nestwright.ir.loop.parser import parse as parse_loops
from nestwright.ir.loop.simplify import simplify
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import substitute_expr
from nestwright.ir.target import Target
from nestwright.schedule.errors import ScheduleError
from nestwright.schedule.excess_error import excess_error, require_accuracy
from nestwright.schedule.language.schedule import Schedule
from nestwright.schedule.primitives.products.pieces import COUNTS, pair_of, pairs, pieces_error
from nestwright.schedule.space.analyze import blocks_of, work_share
from nestwright.te.from_hlo import lower_group

FORM = """HloModule m
ENTRY main {{
  x = {dtype}[{left}] parameter(0)
  w = {dtype}[{right}] parameter(1)
  ROOT c = {dtype}[{result}] {op}
}}"""
DOT = "dot(x, w), lhs_contracting_dims={{{m}}}, rhs_contracting_dims={{{n}}}"
FORMS = {
    "dot": ("6,20", "20,5", "6,5", DOT.format(m=1, n=0)),
    "turned weights": ("6,20", "5,20", "6,5", DOT.format(m=1, n=1)),
    "turned rows": ("20,6", "20,5", "6,5", DOT.format(m=0, n=0)),
    "a vector": ("20", "20,5", "5", DOT.format(m=0, n=0)),
    "a number": ("20", "20", "", DOT.format(m=0, n=0)),
    "two axes": ("4,3,7", "3,7,5", "4,5", DOT.format(m="1,2", n="0,1")),
    "batches": (
        "3,4,9",
        "3,9,5",
        "3,4,5",
        "dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
        "rhs_contracting_dims={1}",
    ),
    "convolution": (
        "2,6,5,4",
        "3,2,4,5",
        "2,4,4,5",
        "convolution(x, w), window={size=3x2}, dim_labels=b01f_01io->b01f",
    ),
    "strided convolution": (
        "1,7,8,4",
        "2,3,4,3",
        "1,3,2,3",
        "convolution(x, w), window={size=2x3 stride=2x2 rhs_dilate=2x2}, "
        "dim_labels=b01f_01io->b01f",
    ),
}


def made(form: str, dtype: str = "f32") -> Func:
    left, right, result, op = FORMS[form]
    text = FORM.format(dtype=dtype, left=left, right=right, result=result, op=op)
    return lower_group(parse(text).entry, "kernel")


def product(m: int, k: int, n: int) -> Func:
    text = FORM.format(
        dtype="f32", left=f"{m},{k}", right=f"{k},{n}", result=f"{m},{n}", op=FORMS["dot"][3]
    )
    return lower_group(parse(text).entry, "kernel")


def anchor(func: Func) -> str:
    return next(b.name for b in blocks_of(func) if b.reduce)


def in_pieces(func: Func, count: int) -> Func:
    sch = Schedule(func)
    sch.in_pieces(anchor(func), count)
    verify(sch.func)
    return sch.func


def shapes(func: Func) -> list[tuple[int, ...]]:
    return [tuple(map(int, b.shape)) for b in func.params[: -func.outputs]]


def numbers(shape: tuple[int, ...], bits: int, seed: int) -> Array:
    """Return numbers of so many bits, between 1/2 and 1 or their negatives."""
    rng = np.random.default_rng(seed)
    found = rng.integers(1 << (bits - 1), 1 << bits, shape) | 1
    return (found * rng.choice([-1, 1], shape) / (1 << bits)).astype(np.float32)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("form", list(FORMS))
def test_the_error_is_less_than_it_says(form: str, count: int) -> None:
    func = made(form)
    rng = np.random.default_rng(1)
    given = [rng.standard_normal(s).astype(np.float32) for s in shapes(func)]
    (wanted,) = run(func, given)
    sch = Schedule(func)
    blocks = sch.in_pieces(anchor(func), count)
    (found,) = run(sch.func, given, seed=3)
    scale = np.sqrt(np.mean(np.square(wanted.astype(np.float64))))
    assert np.abs(found - wanted).max() < (4 * pieces_error(count) + 1e-6) * max(scale, 1.0)
    assert {b.name for b in blocks} < {b.name for b in blocks_of(sch.func)}


@pytest.mark.parametrize("count", COUNTS)
def test_the_estimate_of_the_error_holds(count: int) -> None:
    func = product(24, 96, 24)
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in shapes(func))
    exact = x.astype(np.float64) @ w.astype(np.float64)
    scale = np.sqrt(np.mean(np.square(exact)))
    made = in_pieces(func, count)
    off, plain = (
        np.sqrt(np.mean(np.square(run(f, [x, w])[0] - exact))) / scale for f in (made, func)
    )
    assert off < pieces_error(count) + plain
    assert excess_error(made) == pytest.approx(pieces_error(count), rel=0.1)
    assert (count == 2) == (off > pieces_error(2) / 20)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("bits", [8, 16, 24])
def test_numbers_of_few_bits_are_whole(bits: int, count: int) -> None:
    """A piece has 8 bits. What is left out are products of the last pieces."""
    x = numbers((5, 1), bits, 1)
    one = np.ones((1, 4), np.float32)
    made = in_pieces(product(5, 2, 4), count)
    pad = np.zeros_like(x)
    (found,) = run(made, [np.hstack([x, pad]), np.vstack([one, one])])
    assert np.array_equal(found, np.repeat(x, 4, 1)) == (bits <= 8 * count)
    w = numbers((1, 4), 8, 2)
    (found,) = run(made, [np.hstack([x, pad]), np.vstack([w, one])])
    exact = x.astype(np.float64) * w
    assert np.array_equal(found, exact.astype(np.float32)) == (bits <= 8 * count)


def test_numbers_that_no_piece_holds() -> None:
    func = product(3, 2, 2)
    x = np.array([[np.nan, 1], [np.inf, 1], [3, 1]], np.float32)
    for count in COUNTS:
        (found,) = run(in_pieces(func, count), [x, np.ones((2, 2), np.float32)])
        assert np.isnan(found[:2]).all() and (found[2] == 4).all()
        (found,) = run(in_pieces(func, count), [np.zeros_like(x), np.ones((2, 2), np.float32)])
        assert not found.any()


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_pair_of_large_pieces_is_multiplied_once(count: int) -> None:
    number = Var("n")
    values = []
    for n in range(pairs(count)):
        at = [simplify(substitute_expr(e, {number: Const(n)}), {}) for e in pair_of(number, count)]
        values.append(tuple(e.value for e in at if isinstance(e, Const)))
    wanted = {(i, j) for i in range(count) for j in range(count) if i + j < count}
    if count in COUNTS:
        assert len(values) == len(wanted) and {*values} == wanted
        assert values[0] == (0, 0)
    assert pairs(count) == len(wanted)


def test_the_smallest_products_are_added_first() -> None:
    """Beside a large sum, they would be lost."""
    func = product(2, 2, 2)
    x = np.array([[1 + 2.0**-9, 0], [1, 2.0**-12]], np.float32)
    w = np.array([[1 - 2.0**-10, 1], [1, 0]], np.float32)
    (found,) = run(in_pieces(func, 3), [x, w])
    assert np.array_equal(found, (x.astype(np.float64) @ w).astype(np.float32))


def test_more_pieces_are_more_exact() -> None:
    assert pieces_error(2) < 1e-5 < 2**-8 and pieces_error(3) < 1e-7
    assert [pairs(n) for n in COUNTS] == [3, 6]
    made = in_pieces(product(4, 8, 4), 2)
    (note,) = (EXCESS_ERROR.of(b.block) for b in blocks_of(made) if EXCESS_ERROR.of(b.block))
    assert note * 1e-9 >= pieces_error(2)
    for accuracy, allowed in ((0, False), (1e-6, False), (1e-5, True)):
        target = Target.parse(f"cpu -accuracy={accuracy}")
        if allowed:
            require_accuracy(made, target)
        else:
            with pytest.raises(ScheduleError, match="adds an error of about"):
                require_accuracy(made, target)


def test_arithmetic_of_narrow_floats_is_no_work_of_f32() -> None:
    func = product(16, 32, 16)
    assert work_share(func, func) == 1.0
    assert work_share(func, in_pieces(func, 2)) == 0.0
    narrow = made("dot", "bf16")
    assert work_share(narrow, narrow) == 1.0


def test_the_pieces_are_the_two_operands_in_order() -> None:
    func = product(6, 20, 5)
    sch = Schedule(func)
    first, second = sch.in_pieces(anchor(func), 3)
    buffers = {b.name: b.stores[0].buffer for b in blocks_of(sch.func)}
    assert buffers[first.name].shape == (3, 6, 20) and buffers[second.name].shape == (3, 20, 5)
    assert all(buffers[r.name].dtype == bf16 for r in (first, second))
    sch.compute_at(first, sch.get_loops(anchor(func))[0])
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in shapes(func))
    assert np.abs(run(sch.func, [x, w])[0] - x @ w).max() < 1e-5


def test_counts_that_it_refuses() -> None:
    func = product(4, 8, 4)
    for count in (0, 1, 4):
        with pytest.raises(ScheduleError, match=f"a number has no {count} pieces"):
            Schedule(func).in_pieces(anchor(func), count)


@pytest.mark.parametrize("dtype", ["bf16", "f64", "s32"])
def test_products_of_other_types_that_it_refuses(dtype: str) -> None:
    func = made("dot", dtype)
    with pytest.raises(ScheduleError, match="not a sum of products of two arrays of f32"):
        Schedule(func).in_pieces(anchor(func), 2)


PLAIN = """
@func(outputs=1)
def f(A: f32[6, 4], B: f32[4, 8], C: f32[6, 8]):
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
"""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("f32(0.0)", "f32(1.0)", "start"),
        ("A[vi, vk] * B[vk, vj]\n", "A[vi, vk]\n", "not a sum of products"),
        ("A[vi, vk] * B", "max(A[vi, vk], f32(0.0)) * B", "not a sum of products"),
        ("C[vi, vj] + A[vi, vk] *", "max(C[vi, vj], A[vi, vk]) *", "not"),
    ],
)
def test_blocks_that_it_refuses(old: str, new: str, why: str) -> None:
    assert old in PLAIN
    Schedule(parse_loops(PLAIN)).in_pieces("C", 2)
    with pytest.raises(ScheduleError, match=why):
        Schedule(parse_loops(PLAIN.replace(old, new))).in_pieces("C", 2)


def test_shared_loops_that_it_refuses() -> None:
    func = parse_loops(PLAIN)
    sch = Schedule(func)
    copy = sch.cache_write("C", 0)
    sch.compute_at("C", sch.get_loops(copy)[0])
    with pytest.raises(ScheduleError, match="loops"):
        sch.in_pieces("C", 2)
    sch = Schedule(func)
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    with pytest.raises(ScheduleError):
        sch.in_pieces("C", 2)


def test_what_is_not_written_has_no_pieces() -> None:
    """A packed array of 3 by 2 holds 5 columns."""
    sch = Schedule(two_products())
    sch.transform_layout("C", 0, [0, 2, 1], [[1, 3]])
    with pytest.raises(ScheduleError, match="`C` leaves elements of `C` unwritten"):
        sch.in_pieces("D", 3)
    sch = Schedule(two_products())
    sch.in_pieces("D", 3)
