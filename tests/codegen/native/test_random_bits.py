"""Random bits as XLA gives them; ``rng`` by its distribution; ``scan`` as a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.ir.errors import UnsupportedError, VerifyError
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.expand.random_bits import expand_random_bits
from nestwright.ir.hlo.text import parse

STATE = np.array([0x1234567890ABCDEF, 0xFFFFFFFFFFFFFFFF, 5], np.uint64)

KNOWN = {  # what XLA's CPU gave (jax 0.10.2): the new state, and the bytes of the numbers
    ("rng_three_fry", 2, "u8[3]"): ("efcdab90785634120100000000000000", "21a380"),
    ("rng_three_fry", 2, "u32[2,2]"): (
        "efcdab90785634120100000000000000",
        "21a6fa648028c112a36af8b96b3cab4e",
    ),
    ("rng_three_fry", 2, "s64[3]"): (
        "efcdab90785634120200000000000000",
        "21a6fa64a36af8b98028c1126b3cab4e534c85ff60801400",
    ),
    ("rng_philox", 2, "f32[3]"): (
        "efcdab90785634120000000000000000",
        "55f1db3fb806863790aafefc",
    ),
    ("rng_philox", 3, "u8[2,2]"): (
        "efcdab907856341200000000000000000600000000000000",
        "546904ac",
    ),
    ("rng_default", 3, "u32[3]"): (
        "efcdab907856341200000000000000000600000000000000",
        "541d6b9c6934835b04d08709",
    ),
    ("rng_default", 3, "s64[3]"): (
        "efcdab907856341201000000000000000600000000000000",
        "541d6b9c6934835b04d08709acb631e7cfe53c44771cfdc7",
    ),
}


def bits(algorithm: str, words: int, shape: str) -> HloModule:
    return parse(
        f"HloModule m\n\nENTRY e {{\n  s = u64[{words}] parameter(0)\n"
        f"  ROOT r = (u64[{words}], {shape}) rng-bit-generator(s), algorithm={algorithm}\n}}\n"
    )


@pytest.mark.parametrize("case", KNOWN)
def test_bits_are_those_of_xla(case: tuple[str, int, str]) -> None:
    module = bits(*case)
    for m in (module, expand_random_bits(module)):
        verify(m)
        state, numbers = evaluate(m, [STATE[: case[1]]])
        assert (state.tobytes().hex(), numbers.tobytes().hex()) == KNOWN[case]


@pytest.mark.parametrize("words", [2, 3])
@pytest.mark.parametrize("dtype", ["u8", "s16", "f32", "u64"])
@pytest.mark.parametrize("dims", ["", "5", "3,4", "5,3,7", "0", "2,0,3"])
def test_expansion_gives_the_same_bits(words: int, dtype: str, dims: str) -> None:
    for algorithm in ("rng_philox", "rng_three_fry")[: 4 - words]:
        module = bits(algorithm, words, f"{dtype}[{dims}]")
        want = evaluate(module, [STATE[:words]])
        found = evaluate(expand_random_bits(module), [STATE[:words]])
        assert [a.tobytes() for a in want] == [a.tobytes() for a in found]


@pytest.mark.parametrize("case", [("rng_three_fry", 2, "u32[5,3]"), ("rng_philox", 3, "u16[9]")])
def test_native_bits(case: tuple[str, int, str]) -> None:
    module = bits(*case)
    found, want = build(module)(STATE[: case[1]]), evaluate(module, [STATE[: case[1]]])
    assert [a.tobytes() for a in found] == [a.tobytes() for a in want]


@pytest.mark.parametrize("case", [("rng_three_fry", 3, "u32[4]"), ("rng_philox", 2, "pred[4]")])
def test_a_state_that_does_not_fit(case: tuple[str, int, str]) -> None:
    with pytest.raises((VerifyError, UnsupportedError), match=r"rng_three_fry|pred"):
        build(bits(*case))


def drawing(distribution: str, dtype: str) -> HloModule:
    call = f"{dtype}[4001] rng(a, b), distribution={distribution}"
    return parse(
        f"HloModule m\n\nENTRY e {{\n  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
        f"  x = {call}\n  y = {call}\n  ROOT r = ({dtype}[4001], {dtype}[4001]) tuple(x, y)\n}}\n"
    )


@pytest.mark.parametrize(
    ("distribution", "dtype", "args", "mean", "deviation"),
    [
        ("rng_uniform", "f32", (2, 5), 3.5, 3 / 12**0.5),
        ("rng_uniform", "f64", (-1, 1), 0, 2 / 12**0.5),
        ("rng_uniform", "f16", (0, 1), 0.5, 1 / 12**0.5),
        ("rng_uniform", "s32", (-3, 10), 3, 3.742),
        ("rng_uniform", "u8", (3, 200), 101, 56.9),
        ("rng_uniform", "pred", (0, 1), 0.5, 0.5),
        ("rng_normal", "f32", (1, 2), 1, 2),
        ("rng_normal", "f64", (-5, 0.5), -5, 0.5),
    ],
)
def test_distributions(
    distribution: str, dtype: str, args: Any, mean: float, deviation: float
) -> None:
    module = drawing(distribution, dtype)
    verify(module)
    types = {"f32": "f4", "f64": "f8", "f16": "f2", "s32": "i4", "u8": "u1", "pred": "?"}
    x, y = evaluate(module, [np.asarray(a, types[dtype]) for a in args])
    assert not np.array_equal(x, y)
    for wide in (x.astype(np.float64), y.astype(np.float64)):
        assert abs(wide.mean() - mean) < 0.05 * deviation
        assert abs(wide.std() - deviation) < 0.05 * deviation
        if distribution == "rng_uniform" and dtype != "pred":
            assert wide.min() >= args[0] and wide.max() < args[1]


def test_native_numbers_go_on_from_call_to_call() -> None:
    module = drawing("rng_uniform", "f32")
    args = [np.float32(0), np.float32(1)]
    exe = build(module)
    first, second = exe(*args), exe(*args)
    np.testing.assert_array_equal(first[0], evaluate(module, args)[0])
    assert len({a.tobytes() for a in (*first, *second)}) == 4


SCAN = """HloModule m

add {
  x = f32[2] parameter(0)
  last = f32[2] parameter(1)
  s = f32[2] add(last, x)
  d = f32[2] subtract(x, last)
  ROOT t = (f32[2], f32[2]) tuple(d, s)
}

ENTRY e {
  x = f32[2,5] parameter(0)
  start = f32[2] parameter(1)
  ROOT r = (f32[2,5], f32[2]) scan(x, start), dimensions={1}, num_carries=1, to_apply=add
}
"""


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse: bool) -> None:
    text = SCAN.replace("to_apply", f"is_reverse={str(reverse).lower()}, to_apply")
    x = np.arange(10, dtype=np.float32).reshape(2, 5) ** 2
    carry, out = np.array([3, -1], np.float32), np.zeros((2, 5), np.float32)
    args = [x, carry]
    for n in reversed(range(5)) if reverse else range(5):
        out[:, n], carry = x[:, n] - carry, carry + x[:, n]
    module = parse(text)
    for found in (evaluate(module, args), build(module)(*args)):
        np.testing.assert_array_equal(found[0], out)
        np.testing.assert_array_equal(found[1], carry)


@pytest.mark.parametrize(
    ("old", "new"), [("dimensions={1}", "dimensions={2}"), ("num_carries=1", "num_carries=3")]
)
def test_scans_that_do_not_fit(old: str, new: str) -> None:
    with pytest.raises(VerifyError, match=r"dimensions|num_carries"):
        verify(parse(SCAN.replace(old, new)))
