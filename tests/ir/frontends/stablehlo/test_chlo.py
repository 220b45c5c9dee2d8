"""Each operation of CHLO: its values against NumPy's, Python's, and tables made with SciPy 1.17."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nestwright.ir.errors import ParseError

TYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}
TYPES |= {"int32": "i32", "complex64": "complex<f32>", "bool": "i1", "int8": "i8"}

GAMMA_X = [-4.3, -1.5, -0.2, 1e-3, 0.5, 1.0, 2.0, 3.7, 25.0, 170.5, inf]
LGAMMA = [
    -2.2829708277169436,
    0.860047015376481,
    1.761497590833938,
    6.907178885383853,
    0.5723649429247,
    0.0,
    0.0,
    1.428072326665388,
    54.78472939811232,
    704.0044277342047,
    inf,
]
DIGAMMA = [
    3.8529116001270105,
    0.7031566406452434,
    4.034991433293861,
    -1000.5755719318103,
    -1.9635100260214235,
    -0.5772156649015329,
    0.42278433509846713,
    1.1671535393615113,
    3.198742512851974,
    5.135799878794703,
]

# name, arguments, expected, by f64
TABLES: dict[str, tuple[list[list[float]], list[float]]] = {
    "lgamma": ([GAMMA_X], LGAMMA),
    "digamma": ([[*GAMMA_X[:-1], 0.0, -3.0]], [*DIGAMMA, nan, nan]),
    "erf_inv": (
        [[-1.0, -0.9990234375, -0.75, -0.001, 0.0, 0.3, 0.9375, 1.0]],
        [
            -inf,
            -2.3314677736219473,
            -0.8134198475976184,
            -0.000886227157466552,
            0.0,
            0.2724627147267544,
            1.3171503349861307,
            inf,
        ],
    ),
    "bessel_i1e": (
        [[-30.0, -8.5, -3.0, -0.1, 0.0, 0.7, 7.9, 8.1, 200.0]],
        [
            -0.07191633059864755,
            -0.13054935509459586,
            -0.19682671329730084,
            -0.045298446808809324,
            0.0,
            0.18466998276274726,
            0.13489649943989365,
            0.13340068832583662,
            0.028156503394832916,
        ],
    ),
    "zeta": (
        [
            [1.0, 1.5, 2.0, 4.0, 9.0, 3.0, 2.5, 0.5, 4.0, 3.0, 2.5],
            [2.0, 0.3, 1.0, 0.5, 7.5, 40.0, 1000.0, 2.0, -2.0, -2.0, -1.5],
        ],
        [
            inf,
            8.237761671459724,
            1.6449340668482266,
            16.23484850566707,
            2.0436097937728623e-08,
            0.00032041013591764924,
            2.1097669044166766e-05,
            nan,
            inf,
            nan,
            nan,
        ],
    ),
    "polygamma": (
        [[0.0, 1.0, 2.0, 3.0, 5.0, -1.0, 1.5], [0.4, 1.0, 2.5, 0.3, 9.0, 1.0, 1.0]],
        [
            -2.5613845445851164,
            1.6449340668482266,
            -0.23620405164172736,
            743.1417646550497,
            0.0005317463328963386,
            nan,
            nan,
        ],
    ),
}


def kind(array: np.ndarray[Any, Any]) -> str:
    dims = "".join(f"{d}x" for d in array.shape)
    return f"tensor<{dims}{TYPES[array.dtype.name]}>"


def call(compute: Any, name: str, arrays: list[Any], result: str, attrs: str = "") -> Any:
    """The result of ``chlo.name`` in its own form and in the generic one, which agree."""
    values = [np.asarray(a) for a in arrays]
    types = [kind(v) for v in values]
    given = ", ".join(f"%a{n}: {t}" for n, t in enumerate(types))
    names = ", ".join(f"%a{n}" for n in range(len(values)))
    listed = ", ".join(types)
    own = f"({listed})" if name.startswith("broadcast") else listed
    forms = (
        f"chlo.{name} {names} {attrs} : {own} -> {result}",
        f'"chlo.{name}"({names}) {attrs} : ({listed}) -> {result}',
    )
    found = [
        compute(
            f"func.func @main({given}) -> {result} {{ %r = {f}\nreturn %r : {result} }}", *values
        )[0]
        for f in forms
    ]
    np.testing.assert_array_equal(*(np.asarray(f, np.complex128) for f in found))
    return found[0]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float64, 1e-12), (np.float32, 2e-5), (ml_dtypes.bfloat16, 2e-2)],
    ids=str,
)
def test_special_functions(name: str, dtype: Any, tolerance: float, compute: Any) -> None:
    rows, expected = TABLES[name]
    arrays = [np.array(r).astype(dtype) for r in rows]
    if dtype == ml_dtypes.bfloat16:  # which moves the arguments: only whole ones count
        kept = np.all([a.astype(float) == r for a, r in zip(arrays, rows, strict=True)], axis=0)
        arrays, expected = [a[kept] for a in arrays], list(np.array(expected)[kept])
    found = call(compute, name, arrays, kind(arrays[0]))
    assert found.dtype == arrays[0].dtype
    np.testing.assert_allclose(
        found.astype(float), expected, rtol=tolerance, atol=tolerance, equal_nan=True
    )


UNARY: dict[str, tuple[Callable[..., Any], list[float]]] = {
    "acos": (np.arccos, [-0.9, 0.0, 0.3]),
    "acosh": (np.arccosh, [1.0, 1.5, 40.0]),
    "asin": (np.arcsin, [-0.9, 0.0, 0.3]),
    "asinh": (np.arcsinh, [-3.0, 1e-4, 20.0]),
    "atan": (np.arctan, [-3.0, 0.1, 20.0]),
    "atanh": (np.arctanh, [-0.9, 0.0, 0.3]),
    "cosh": (np.cosh, [-3.0, 0.1, 5.0]),
    "sinh": (np.sinh, [-3.0, 0.1, 5.0]),
    "tan": (np.tan, [-3.0, 0.1, 1.2]),
    "erf": (lambda x: [-0.8427007929497149, 0.1124629160182849, 0.9999779095030014], [-1, 0.1, 3]),
    "erfc": (
        lambda x: [1.842700792949715, 0.8875370839817151, 2.209049699858544e-05],
        [-1, 0.1, 3],
    ),
    "square": (np.square, [-3.0, 0.1, 1.2]),
    "conj": (np.conj, [-3.0, 0.1, 1.2]),
}


@pytest.mark.parametrize("name", UNARY)
def test_functions_that_hlo_has(name: str, compute: Any) -> None:
    function, values = UNARY[name]
    x = np.array(values, np.float32)
    np.testing.assert_allclose(call(compute, name, [x], kind(x)), function(x), rtol=1e-5)


def test_complex_numbers(compute: Any) -> None:
    z = np.array([1 + 2j, -3 + 3j, 1e30 + 1e30j], np.complex64)
    assert call(compute, "conj", [z], kind(z)).tolist() == z.conj().tolist()
    squares = call(compute, "square", [z], kind(z))
    assert squares.tolist() == [-3 + 4j, -18j, complex(0, inf)]
    np.testing.assert_allclose(call(compute, "asin", [z[:2]], kind(z[:2])), np.arcsin(z[:2]), 1e-5)


def test_infinities(compute: Any) -> None:
    x = np.array([inf, -inf, nan, 3], np.float32)
    for name, expected in (
        ("is_inf", [True, True, False, False]),
        ("is_pos_inf", [True, False, False, False]),
        ("is_neg_inf", [False, True, False, False]),
    ):
        assert call(compute, name, [x], "tensor<4xi1>").tolist() == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_neighbors(dtype: Any, compute: Any) -> None:
    x = np.array([1, 1, -1, 0, 0, 3, inf, nan, 1, -0.0, 2], dtype)
    y = np.array([2, 0, 5, 1, -1, 3, 0, 1, nan, 1, -2], dtype)
    with np.errstate(all="ignore"):
        expected = np.nextafter(x, y)
    found = call(compute, "next_after", [x, y], kind(x))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_the_largest_and_their_places(compute: Any) -> None:
    x = np.array([[3, 9, 9, -1], [0, nan, 2, inf]], np.float32)
    text = """func.func @main(%x: tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>) {
  %v, %i = chlo.top_k(%x, k = 2) : tensor<2x4xf32> -> (tensor<2x2xf32>, tensor<2x2xi32>)
  return %v, %i : tensor<2x2xf32>, tensor<2x2xi32>
}"""
    values, places = compute(text, x)
    np.testing.assert_array_equal(values, np.array([[9, 9], [nan, inf]], np.float32))
    assert places.tolist() == [[1, 2], [1, 3]]


def test_constants(compute: Any) -> None:
    text = """func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
  %0 = "chlo.constant_like"(%x) <{value = 2.5 : f32}> : (tensor<2xf32>) -> tensor<2xf32>
  %1 = chlo.constant dense<[1, 2]> : tensor<2xi32>
  return %0, %1 : tensor<2xf32>, tensor<2xi32>
}"""
    first, second = compute(text, np.zeros(2, np.float32))
    assert first.tolist() == [2.5, 2.5] and second.tolist() == [1, 2]


def test_the_high_half_of_a_product(compute: Any) -> None:
    x = np.array([2**20, -(2**20), 7], np.int32)
    text = f"""func.func @main(%x: {kind(x)}) -> {kind(x)} {{
  %0 = chlo.mulhi %x, %x : {kind(x)}, {kind(x)} -> {kind(x)}
  return %0 : {kind(x)}
}}"""
    assert compute(text, x)[0].tolist() == [256, 256, 0]


NAMES = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
    "remainder": np.fmod,
    "atan2": np.arctan2,
    "next_after": np.nextafter,
}
BITS = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "shift_right_logical": lambda a, b: (a.view(np.uint32) >> b.view(np.uint32)).view(np.int32),
}


@pytest.mark.parametrize("name", NAMES)
def test_operands_broadcast(name: str, compute: Any) -> None:
    x = np.array([[0.5], [2.0]], np.float32)
    y = np.array([1.5, 0.25, 3.0], np.float32)
    found = call(compute, f"broadcast_{name}", [x, y], "tensor<2x3xf32>")
    np.testing.assert_allclose(found, NAMES[name](x, y), rtol=1e-6)


@pytest.mark.parametrize("name", BITS)
def test_integers_broadcast(name: str, compute: Any) -> None:
    x, y = np.array([[-7, 5, 6]], np.int32), np.array(2, np.int32)
    found = call(compute, f"broadcast_{name}", [x, y], "tensor<1x3xi32>")
    assert found.tolist() == BITS[name](x, y).tolist()


def test_operands_broadcast_along_given_dimensions(compute: Any) -> None:
    x, y = np.ones((2, 3), np.float32), np.array([10, 20], np.float32)
    attrs = "{broadcast_dimensions = array<i64: 0>}"
    found = call(compute, "broadcast_add", [x, y], "tensor<2x3xf32>", attrs)
    assert found.tolist() == [[11] * 3, [21] * 3]


def test_other_operations_broadcast(compute: Any) -> None:
    x, y = np.array([[1], [3]], np.float32), np.array([2, 3], np.float32)
    attrs = "{comparison_direction = #chlo<comparison_direction GE>}"
    found = call(compute, "broadcast_compare", [x, y], "tensor<2x2xi1>", attrs)
    assert found.tolist() == (x >= y).tolist()
    found = call(compute, "broadcast_complex", [x, y], "tensor<2x2xcomplex<f32>>")
    assert found.tolist() == (x + 1j * y).tolist()
    choice = np.array([True, False])
    found = call(compute, "broadcast_select", [choice, x, y], "tensor<2x2xf32>")
    assert found.tolist() == np.where(choice, x, y).tolist()
    found = call(compute, "broadcast_zeta", [np.full((2, 1), 2, np.float32), y], "tensor<2x2xf32>")
    np.testing.assert_allclose(found, [[0.64493407, 0.39493407]] * 2, rtol=1e-5)
    found = call(compute, "broadcast_polygamma", [x, y], "tensor<2x2xf32>")
    np.testing.assert_allclose(found, [[0.64493407, 0.39493407], [0.49393940, 0.11893940]], 1e-5)


def test_what_does_not_fit_or_cannot_be_read_says_so(compute: Any) -> None:
    x, i = np.ones((2, 3), np.float32), np.ones(2, np.int32)
    with pytest.raises(ParseError, match=r"operands of f32\[2,3\].* do not broadcast"):
        call(compute, "broadcast_add", [x, np.ones(2, np.float32)], "tensor<2x3xf32>")
    with pytest.raises(ParseError, match=r"it takes floats, not s32\[2\]"):
        call(compute, "lgamma", [i], "tensor<2xi32>")
    with pytest.raises(ParseError, match="it takes floats"):
        call(compute, "is_inf", [i], "tensor<2xi1>")


NUMBERS = {
    "lhs_batching_dimensions": "",
    "rhs_batching_dimensions": "",
    "lhs_contracting_dimensions": "1",
    "rhs_contracting_dimensions": "1",
    "lhs_ragged_dimensions": "0",
    "rhs_group_dimensions": "0",
}


def ragged() -> tuple[list[Any], Any]:
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    w = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    return [x, w, np.array([2, 3], np.int32)], np.concatenate([x[:2] @ w[0], x[2:] @ w[1]])


def test_ragged_products(compute: Any) -> None:
    arrays, wanted = ragged()
    fields = ", ".join(f"{name} = [{dims}]" for name, dims in NUMBERS.items() if dims)
    attrs = f"{{ragged_dot_dimension_numbers = #chlo.ragged_dot<{fields}>}}"
    found = call(compute, "ragged_dot", arrays, "tensor<5x4xf32>", attrs)
    np.testing.assert_array_equal(found, wanted)


def test_a_ragged_product_may_be_a_composite(compute: Any) -> None:
    """As JAX exports it for accelerators; its decomposition is not looked at."""
    arrays, wanted = ragged()
    numbers = ", ".join(f"dense<{dims}> : tensor<{len(dims)}xi64>" for dims in NUMBERS.values())
    types = "tensor<5x3xf32>, tensor<2x3x4xf32>, tensor<2xi32>"
    text = f"""module @m {{
  func.func @main(%x: tensor<5x3xf32>, %w: tensor<2x3x4xf32>, %n: tensor<2xi32>)
      -> tensor<5x4xf32> {{
    %0 = stablehlo.composite "chlo.ragged_dot" %x, %w, %n {{composite_attributes = {{
      precision_config = ["DEFAULT", "DEFAULT"], ragged_dot_dimension_numbers = [{numbers}]}},
      decomposition = @f, version = 1 : i32}} : ({types}) -> tensor<5x4xf32>
    return %0 : tensor<5x4xf32>
  }}
  func.func private @f(%x: tensor<5x3xf32>, %w: tensor<2x3x4xf32>, %n: tensor<2xi32>)
      -> tensor<5x4xf32> {{
    %0 = stablehlo.constant dense<0.0> : tensor<5x4xf32>
    return %0 : tensor<5x4xf32>
  }}
}}"""
    np.testing.assert_array_equal(compute(text, *arrays)[0], wanted)
