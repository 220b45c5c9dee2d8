"""Custom calls that have a meaning as HLO: what they become, what is refused, who goes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from nestwright.codegen.driver.build import build
from nestwright.ir.errors import UnsupportedError, VerifyError
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.expand.custom_calls import expand_custom_calls
from nestwright.ir.library.registry import register_custom_call, unregister_custom_call

Becomes = Callable[..., object]


@pytest.fixture
def asin_of_mine() -> Iterator[None]:
    register_custom_call("mhlo.asin", lambda call, x: x + 1)
    yield
    unregister_custom_call("mhlo.asin")


def one(target: str, shape: str = "f32[3,5]", more: str = "", of: str = "f32[3,5]") -> str:
    return f"""ENTRY main {{
      x = {of} parameter(0)
      ROOT y = {shape} custom-call(x), custom_call_target="{target}"{more}
    }}"""


def plain(opcode: str) -> str:
    return f"ENTRY main {{ x = f32[3,5] parameter(0)\n ROOT y = f32[3,5] {opcode}(x) }}"


@pytest.mark.parametrize("name", ["asin", "acosh", "erf", "tan", "cosh", "log_plus_one"])
def test_operations_of_other_dialects(becomes: Becomes, name: str) -> None:
    for dialect in ("mhlo.", "chlo."):
        becomes(expand_custom_calls, one(dialect + name), plain(name.replace("_", "-")))


@pytest.mark.parametrize("name", ["Sharding", "xla.sdy.FuncResultSharding", "MoveToHost"])
def test_marks_are_dropped(becomes: Becomes, name: str) -> None:
    used = """ENTRY main { x = f32[4] parameter(0)
      y = f32[4] custom-call(x), custom_call_target="NAME", sharding={replicated}
      ROOT z = f32[4] add(y, x) }""".replace("NAME", name)
    after = "ENTRY main { x = f32[4] parameter(0)\n ROOT z = f32[4] add(x, x) }"
    becomes(expand_custom_calls, used, after)


def test_operations_with_other_results(becomes: Becomes) -> None:
    after = "ENTRY main { x = f32[3,5] parameter(0)\n ROOT y = pred[3,5] is-finite(x) }"
    becomes(expand_custom_calls, one("mhlo.is_finite", "pred[3,5]"), after)


PAIR = "(f32[3,2], s32[3,2])"
RISING = """less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
"""


@pytest.mark.parametrize(
    "target, more, before, largest",
    [
        ("TopK", "", "", True),
        ("mhlo.topk", ", backend_config={k = 2 : i64, largest = false}", "", False),
        ("TopK", ", called_computations={less}", RISING, False),
    ],
)
def test_top_k(becomes: Becomes, target: str, more: str, before: str, largest: bool) -> None:
    attrs = f"k=2, largest={'true' if largest else 'false'}"
    after = f"ENTRY main {{ x = f32[3,5] parameter(0)\n ROOT y = {PAIR} topk(x), {attrs} }}"
    text = before + one(target, PAIR, more)
    becomes(expand_custom_calls, text, after)
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    values, at = build(parse(f"HloModule m\n{text}"))(x)
    order = np.argsort(-x if largest else x, axis=1)[:, :2]
    np.testing.assert_array_equal(at, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_an_allocated_buffer_is_zeros() -> None:
    text = (
        'HloModule m\nENTRY e { ROOT b = s8[4] custom-call(), custom_call_target="AllocateBuffer" }'
    )
    assert not build(parse(text))().any() and not evaluate(parse(text), []).any()


@pytest.mark.parametrize(
    "text, why",
    [
        (one("mhlo.asin", "f32[5,3]"), "no function computes `mhlo.asin`"),
        (one("mhlo.floordiv"), "no function computes `mhlo.floordiv`"),
        (one("mhlo.atan2"), "no function computes `mhlo.atan2`"),
        (one("mhlo.popcnt"), "no function computes `mhlo.popcnt`"),
        (one("mhlo.select"), "no function computes `mhlo.select`"),
        (one("TopK", "(c64[3,2], s32[3,2])", "", "c64[3,5]"), "no function computes `TopK`"),
        (one("xla_ffi_python_cpu_callback"), "calls a Python function(.|\n)*jax.debug.print"),
        (one("SPMDFullToShardShape", "f32[3,1]"), "would change its operand's shape"),
        (one("TopK", "(f32[3,9], s32[3,9])"), "no function computes `TopK`"),
        (one("TopK", "(f32[3,2], s64[3,2])"), "no function computes `TopK`"),
    ],
)
def test_what_means_nothing_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        build(parse(f"HloModule m\n{text}"))


def test_a_registered_function_goes_first(asin_of_mine: None) -> None:
    module = parse(f"HloModule m\n{one('mhlo.asin')}")
    x = np.zeros((3, 5), np.float32)
    assert (build(module)(x) == 1).all() and (evaluate(module, [x]) == 1).all()


@pytest.mark.parametrize(
    "text, why",
    [
        (
            "x = c64[4,8] parameter(0)\n ROOT y = c64[4,8] fft(x), fft_type=FFT, fft_length={4}",
            "fft_length",
        ),
        (
            "x = f32[8] parameter(0)\n ROOT y = f32[8] fft(x), fft_type=FFT, fft_length={8}",
            "fft_type",
        ),
        (
            "x = c64[9] parameter(0)\n ROOT y = f32[8] fft(x), fft_type=IRFFT, fft_length={8}",
            "fft_length",
        ),
        ("x = f32[2,3] parameter(0)\n ROOT y = f32[2,3] cholesky(x), lower=true", "square"),
        ("x = s32[3,3] parameter(0)\n ROOT y = s32[3,3] cholesky(x), lower=true", "square"),
        (
            "x = f32[3,3] parameter(0)\n z = f64[3,3] parameter(1)\n"
            " ROOT y = f64[3,3] triangular-solve(x, z), left_side=true, transpose_a=TRANSPOSE",
            "a system of",
        ),
        (
            "x = f32[3,3] parameter(0)\n"
            " ROOT y = f32[3,3] triangular-solve(x, x), transpose_a=NO_TRAPOSE",
            "is not one of",
        ),
        ("ROOT y = u64[3] rng-get-and-update-state(), delta=1", "its operands give"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(text: str, why: str) -> None:
    with pytest.raises(VerifyError, match=why):
        build(parse(f"HloModule m\nENTRY main {{ {text} }}"))


CSR = """ENTRY main {
  numbers = f32[5] parameter(0)
  starts = s32[5] parameter(1)
  columns = s32[5] parameter(2)
  x = f32[3DENSE] parameter(3)
  ROOT y = f32[4DENSE] custom-call(numbers, starts, columns, x),
    custom_call_target="cpu_csr_sparse_dense_ffi"
}"""


@pytest.mark.parametrize("more", [(), (2,)])
def test_products_of_sparse_rows(more: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    dense = np.array([[0, 0, 0], [2, 0, 3], [0, 0, 0], [0, 4, 0]], np.float32)
    numbers, columns = np.array([9, 2, 3, 4, 9], np.float32), np.array([0, 0, 2, 1, 2], np.int32)
    starts = np.array([1, 1, 3, 3, 4], np.int32)  # the first number and the last are in no row
    x = rng.standard_normal((3, *more)).astype(np.float32)
    module = parse(CSR.replace("DENSE", "".join(f",{d}" for d in more)))
    for f in (build(module), lambda *given: evaluate(module, given)):
        np.testing.assert_allclose(f(numbers, starts, columns, x), dense @ x, rtol=1e-6)


def test_products_of_sparse_rows_with_other_shapes() -> None:
    with pytest.raises(UnsupportedError, match="no function computes `cpu_csr_sparse_dense_ffi`"):
        build(parse(CSR.replace("f32[4DENSE]", "f32[5]").replace("DENSE", "")))
