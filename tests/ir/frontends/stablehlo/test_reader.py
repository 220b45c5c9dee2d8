"""StableHLO text: literals, names, regions, functions, what a module says of itself."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

F, N = np.float32, np.int32
INF = np.inf

# literal and type, expected
LITERALS: list[tuple[str, str, Any]] = [
    ("dense<[[1, -2], [3, 4]]>", "tensor<2x2xi32>", np.array([[1, -2], [3, 4]], N)),
    ("dense<7>", "tensor<2x3xui8>", np.full((2, 3), 7, np.uint8)),
    ("dense<255>", "tensor<i8>", np.int8(-1)),
    ("dense<-1>", "tensor<ui16>", np.uint16(65535)),
    ("dense<0xFF>", "tensor<i16>", np.int16(255)),
    ("dense<>", "tensor<0x3xf32>", np.zeros((0, 3), F)),
    ("dense<[true, false]>", "tensor<2xi1>", np.array([True, False])),
    ("dense<[1.5, 0xFF800000, 0x7FC00000]>", "tensor<3xf32>", np.array([1.5, -INF, np.nan], F)),
    ("dense<0x7C00>", "tensor<f16>", np.float16(INF)),
    ("dense<[0x7F80, 1.0]>", "tensor<2xbf16>", np.array([INF, 1], ml_dtypes.bfloat16)),
    ("dense<[1.0, 0x7E]>", "tensor<2xf8E4M3FN>", np.array([1, 448], ml_dtypes.float8_e4m3fn)),
    ("dense<0x7FF0000000000000>", "tensor<f64>", np.float64(INF)),
    ("dense<[-8, 7]>", "tensor<2xi4>", np.array([-8, 7], ml_dtypes.int4)),
    ("dense<[(1.0, -2.0)]>", "tensor<1xcomplex<f32>>", np.array([1 - 2j], np.complex64)),
    ("dense<(0.0,1.0)>", "tensor<2xcomplex<f64>>", np.full(2, 1j)),
    ('dense<"0x0000803F00000040">', "tensor<2xf32>", np.array([1, 2], F)),
    ('dense<"0x0000803F">', "tensor<2x2xf32>", np.ones((2, 2), F)),
    ('dense<"0x05">', "tensor<3xi1>", np.array([True, False, True])),
    ('dense<"0x010001">', "tensor<3xi1>", np.array([True, False, True])),
    ('dense<"0x0F01">', "tensor<2xi4>", np.array([-1, 1], ml_dtypes.int4)),
    ("dense<[1, 2]>", "tensor<2xindex>", np.array([1, 2])),
]


@pytest.mark.parametrize(("text", "kind", "expected"), LITERALS)
def test_literals(text: str, kind: str, expected: Any, body: Any) -> None:
    operation = f"%c = stablehlo.constant {text} : {kind}\nreturn %c : {kind}"
    (found,) = body("", kind, operation)
    wanted = np.asarray(expected)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes() or np.array_equal(found, wanted, equal_nan=True)


def test_resources_are_blobs_of_the_text(compute: Any) -> None:
    text = """module {
  func.func @main() -> tensor<2xf32> {
    %c = stablehlo.constant dense_resource<weights> : tensor<2xf32>
    return %c : tensor<2xf32>
  }
}
{-#
  dialect_resources: {
    builtin: {
      weights: "0x040000000000803F00000040"
    }
  }
#-}"""
    assert compute(text)[0].tolist() == [1, 2]


def test_a_loop_takes_what_it_uses_from_around(body: Any, stablehlo: Any) -> None:
    text = """
    %c0 = stablehlo.constant dense<0> : tensor<i32>
    %c1 = stablehlo.constant dense<1> : tensor<i32>
    %r:2 = stablehlo.while(%i = %c0, %x = %a) : tensor<i32>, tensor<2xf32>
    cond {
      %t = stablehlo.compare LT, %i, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    } do {
      %j = stablehlo.add %i, %c1 : tensor<i32>
      %y = stablehlo.add %x, %a : tensor<2xf32>
      stablehlo.return %j, %y : tensor<i32>, tensor<2xf32>
    }
    return %r#1 : tensor<2xf32>"""
    (found,) = body("tensor<2xf32> tensor<i32>", "tensor<2xf32>", text, np.array([1, 2], F), N(3))
    assert found.tolist() == [4, 8]


def test_a_loop_of_one_value_and_one_of_none(body: Any) -> None:
    text = """
    %r = stablehlo.while(%x = %a) : tensor<i32>
     cond {
      %n = stablehlo.constant dense<9> : tensor<i32>
      %t = stablehlo.compare LT, %x, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    } do {
      %y = stablehlo.add %x, %x : tensor<i32>
      stablehlo.return %y : tensor<i32>
    }
    stablehlo.while()
     cond {
      %t = stablehlo.constant dense<false> : tensor<i1>
      stablehlo.return %t : tensor<i1>
    } do {
      stablehlo.return
    }
    return %r : tensor<i32>"""
    assert body("tensor<i32>", "tensor<i32>", text, N(3))[0] == 12


@pytest.mark.parametrize(("choice", "expected"), [(0, [1, 2, 1]), (1, [3, 2, 3]), (5, [3, 2, 3])])
def test_branches_take_what_they_use(choice: int, expected: list[int], body: Any) -> None:
    text = """
    %three = stablehlo.constant dense<3> : tensor<i32>
    %r:2 = "stablehlo.case"(%a) ({
      stablehlo.return %b, %c : tensor<i32>, tensor<i32>
    }, {
      stablehlo.return %three, %c : tensor<i32>, tensor<i32>
    }) : (tensor<i32>) -> (tensor<i32>, tensor<i32>)
    %t = stablehlo.compare EQ, %a, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %s = "stablehlo.if"(%t) ({
      stablehlo.return %b : tensor<i32>
    }, {
      %n = stablehlo.add %b, %c : tensor<i32>
      stablehlo.return %n : tensor<i32>
    }) : (tensor<i1>) -> tensor<i32>
    return %r#0, %r#1, %s : tensor<i32>, tensor<i32>, tensor<i32>"""
    types = "tensor<i32> tensor<i32> tensor<i32> tensor<i32>"
    results = "tensor<i32>, tensor<i32>, tensor<i32>"
    found = body(types, results, text, N(choice), N(1), N(2), N(0))
    assert [int(x) for x in found] == expected


def test_a_reducer_may_use_constants_from_around(body: Any) -> None:
    text = """
    %two = stablehlo.constant dense<2> : tensor<i32>
    %four = stablehlo.multiply %two, %two : tensor<i32>
    %r = "stablehlo.reduce"(%a, %two) <{dimensions = array<i64: 0>}> ({
    ^bb0(%p: tensor<i32>, %q: tensor<i32>):
      %s = stablehlo.add %p, %q : tensor<i32>
      %t = stablehlo.minimum %s, %four : tensor<i32>
      stablehlo.return %t : tensor<i32>
    }) : (tensor<3xi32>, tensor<i32>) -> tensor<i32>
    return %r : tensor<i32>"""
    assert body("tensor<3xi32>", "tensor<i32>", text, np.array([1, 2, 3], N))[0] == 4


def test_functions_of_open_sizes_are_read_for_each_shape(compute: Any) -> None:
    text = """
func.func public @main(%x: tensor<4xf32>, %y: tensor<2x3xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %0 = call @twice(%x) : (tensor<4xf32>) -> tensor<?xf32>
  %n = stablehlo.get_dimension_size %y, dim = 1 : (tensor<2x3xf32>) -> tensor<i32>
  %1 = call @flat(%y, %n) : (tensor<2x3xf32>, tensor<i32>) -> tensor<?xf32>
  return %0, %1 : tensor<?xf32>, tensor<?xf32>
}
func.func private @twice(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.concatenate %x, %x, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
func.func private @flat(%x: tensor<?x?xf32>, %n: tensor<i32>) -> tensor<?xf32> {
  %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
  %1 = stablehlo.multiply %0, %n : tensor<i32>
  %2 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
  %3 = stablehlo.dynamic_reshape %x, %2 : (tensor<?x?xf32>, tensor<1xi32>) -> tensor<?xf32>
  %4 = stablehlo.compare EQ, %1, %1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%4) {error_message = "no"} : (tensor<i1>) -> ()
  %5 = call @twice(%3) : (tensor<?xf32>) -> tensor<?xf32>
  return %5 : tensor<?xf32>
}"""
    x, y = np.arange(4, dtype=F), np.arange(6, dtype=F).reshape(2, 3)
    first, second = compute(text, x, y)
    assert first.tolist() == [*x, *x] and second.tolist() == [*y.flat, *y.flat]


SIZES = {
    "dynamic_broadcast_in_dim": (
        "%s = stablehlo.constant dense<[2, 3]> : tensor<2xi64>\n"
        "%r = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [1]"
        " : (tensor<3xi32>, tensor<2xi64>) -> tensor<?x?xi32>",
        [[1, 2, 3], [1, 2, 3]],
    ),
    "dynamic_iota": (
        "%s = stablehlo.constant dense<[3]> : tensor<1xi32>\n"
        "%r = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>",
        [0, 1, 2],
    ),
    "dynamic_pad": (
        "%s = stablehlo.constant dense<1> : tensor<1xi32>\n%z = stablehlo.constant dense<0>"
        " : tensor<i32>\n%r = stablehlo.dynamic_pad %a, %z, %s, %s, %s : (tensor<3xi32>,"
        " tensor<i32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xi32>",
        [0, 1, 0, 2, 0, 3, 0],
    ),
    "real_dynamic_slice": (
        "%s = stablehlo.constant dense<1> : tensor<1xi32>\n%t = stablehlo.add %s, %s"
        " : tensor<1xi32>\n%r = stablehlo.real_dynamic_slice %a, %s, %t, %s : (tensor<3xi32>,"
        " tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xi32>",
        [2],
    ),
    "dynamic_gather": (
        "%i = stablehlo.constant dense<[[2], [0]]> : tensor<2x1xi32>\n%s = stablehlo.constant"
        ' dense<1> : tensor<1xi32>\n%r = "stablehlo.dynamic_gather"(%a, %i, %s)'
        " <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map ="
        " [0], index_vector_dim = 1>}> : (tensor<3xi32>, tensor<2x1xi32>, tensor<1xi32>)"
        " -> tensor<2xi32>",
        [3, 1],
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_constants_give(name: str, body: Any) -> None:
    operations, expected = SIZES[name]
    rank = np.ndim(expected)
    kind = f"tensor<{'?x' * rank}i32>" if name != "dynamic_gather" else "tensor<2xi32>"
    text = f"{operations}\nreturn %r : {kind}"
    (found,) = body("tensor<3xi32>", kind, text, np.array([1, 2, 3], N))
    assert found.tolist() == expected


def test_composites_and_calls_are_their_functions(compute: Any) -> None:
    text = """module @m {
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.composite "my.f" %x {decomposition = @f, version = 1 : i32}
      : (tensor<f32>) -> tensor<f32>
    %1 = func.call @f(%0) : (tensor<f32>) -> tensor<f32>
    return %1 : tensor<f32>
  }
  func.func private @f(%x: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %x, %x : tensor<f32>
    return %0 : tensor<f32>
  }
}"""
    assert compute(text, F(3))[0] == 12


GENERIC = """#loc1 = loc("f.py":7:3 to :9)
"builtin.module"() <{sym_name = "m"}> ({
  "func.func"() <{arg_attrs = [{tf.aliasing_output = 0 : i32}], function_type =
      (tensor<2xf32>) -> tensor<2xf32>, sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg0: tensor<2xf32> loc("x")):
    %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc(#loc3)
    %cst_0 = "stablehlo.constant"() <{value = dense<2.0> : tensor<f32>}> : () -> tensor<f32>
    "func.return"(%0) : (tensor<2xf32>) -> ()
  }) : () -> () loc(unknown)
}) {mhlo.num_partitions = 2 : i32} : () -> ()
#loc2 = loc(callsite("f"(#loc1) at fused["g.py":1:1, #loc9]))
#loc3 = loc("jit(f)/add \\"q\\""(#loc2))
"""


def test_names_places_and_the_header_are_kept(stablehlo: Any) -> None:
    module = stablehlo(GENERIC)
    assert module.name == "m" and module.entry.name == "main"
    assert module.attrs["num_partitions"].text == "2"
    assert module.attrs["input_output_alias"].text == "{ {}: (0, {}, may-alias) }"
    names = [i.name for i in module.entry.instructions]
    assert names == ["arg0", "add.0", "cst_0"]
    metadata = module.entry.root.metadata
    assert metadata.op_name == r"jit(f)/add \"q\""
    assert (metadata.source_file, metadata.source_line) == ("f.py", 7)


def test_names_that_hlo_text_cannot_hold(stablehlo: Any) -> None:
    text = """module @"a b" {
  func.func @main(%ROOT: tensor<f32>, %$x-y: tensor<f32>, %1: tensor<f32>) -> tensor<f32> {
    %0 = call @"\\C3\\A9 2"(%ROOT) : (tensor<f32>) -> tensor<f32>
    %2 = call @ENTRY(%0) : (tensor<f32>) -> tensor<f32>
    return %2 : tensor<f32>
  }
  func.func private @ENTRY(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }
  func.func private @"\\C3\\A9 2"(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }
}"""
    module = stablehlo(text)
    assert module.name == "a_b" and [c.name for c in module.computations] == [
        "__2",
        "_ENTRY",
        "main",
    ]
    names = [i.name for i in module.entry.instructions]
    assert names == ["_ROOT", "_x-y", "parameter.1", "call.0", "call.2"]


def test_layouts_of_arguments_and_results(stablehlo: Any) -> None:
    text = """func.func @main(%x: tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"})
        -> (tensor<2x3xf32> {mhlo.layout_mode = "default"}) { return %x : tensor<2x3xf32> }"""
    whole = """module attributes {
    mhlo.xla_entry_computation_parameter_layouts = [dense<[0, 1]> : tensor<2xindex>]} {
      func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> { return %x : tensor<2x3xf32> } }"""
    for layouts in (text, whole):
        header = stablehlo(layouts).attrs["entry_computation_layout"].text
        assert header == "{(f32[2,3]{0,1})->f32[2,3]{1,0}}"


def test_foreign_calls_keep_their_attributes(stablehlo: Any) -> None:
    text = """func.func @main(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>) {
  %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%x) {backend_config = "",
    mhlo.backend_config = {uplo = 76 : ui8}, operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
    result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>],
    mhlo.frontend_attributes = {num_batch_dims = "0"}, has_side_effect = true}
    : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>)
  return %0#0, %0#1 : tensor<2x2xf32>, tensor<i32>
}"""
    (call,) = (i for i in stablehlo(text).entry.instructions if i.opcode == "custom-call")
    assert call.attrs["custom_call_target"] == "lapack_spotrf_ffi"
    assert call.attrs["api_version"] == "API_VERSION_TYPED_FFI"
    assert call.attrs["backend_config"].text == "{uplo = 76 : ui8}"
    assert call.attrs["operand_layout_constraints"].text == "{f32[2,2]{0,1}}"
    assert call.attrs["custom_call_has_side_effect"]
    assert call.shape.elements[0].layout == (0, 1)


def test_the_entry_is_main_or_the_one_public_function(stablehlo: Any) -> None:
    one = "func.func {} @{}() -> tensor<i32> {{\n%0 = stablehlo.constant dense<{}> : tensor<i32>\n"
    one += "return %0 : tensor<i32>\n}}\n"
    both = one.format("private", "f", 1) + one.format("public", "g", 2)
    assert stablehlo(both).entry.name == "g"
    assert stablehlo(one.format("private", "f", 1)).entry.name == "f"
    assert stablehlo(both + one.format("", "main", 3)).entry.name == "main"


def test_aliases_stand_for_attributes_and_types(body: Any, compute: Any) -> None:
    text = """#order = array<i64: 1, 0>
!t = tensor<2x3xf32>
func.func @main(%x: !t) -> tensor<3x2xf32> {
  %0 = "stablehlo.transpose"(%x) <{permutation = #order}> : (!t) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}"""
    x = np.arange(6, dtype=F).reshape(2, 3)
    assert np.array_equal(compute(text, x)[0], x.T)


def test_a_scan_carries_along_a_dimension(body: Any) -> None:
    text = """
    %z = stablehlo.constant dense<0> : tensor<2xi32>
    %r:2 = chlo.scan(%a) inits(%z) dimension=1 {
    ^bb0(%x: tensor<2xi32>, %c: tensor<2xi32>):
      %s = stablehlo.add %x, %c : tensor<2xi32>
      stablehlo.return %s, %s : tensor<2xi32>, tensor<2xi32>
    } : (tensor<2x3xi32>, tensor<2xi32>) -> (tensor<2x3xi32>, tensor<2xi32>)
    return %r#0, %r#1 : tensor<2x3xi32>, tensor<2xi32>"""
    x = np.arange(6, dtype=N).reshape(2, 3)
    sums, last = body("tensor<2x3xi32>", "tensor<2x3xi32>, tensor<2xi32>", text, x)
    assert np.array_equal(sums, x.cumsum(1)) and np.array_equal(last, x.sum(1))
