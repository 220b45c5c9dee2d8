"""StableHLO that cannot be read: the typed error, its place and its hint; and limits."""

from __future__ import annotations

import time
from typing import Any

import pytest

from nestwright.ir.errors import ParseError, UnsupportedError
from nestwright.ir.frontends.stablehlo.reader import parse

ARGUMENTS = "%x: tensor<2x3xf32>, %i: tensor<i32>"
X = "tensor<2x3xf32>"

BROKEN = {  # operations of a function, what the error says
    "%0 = stablehlo.nope %x : tensor<2x3xf32>": "2:6: unknown operation `stablehlo.nope`",
    "%0 = stablehlo.logistc %x : tensor<2x3xf32>": r"\n.*did you mean `stablehlo.logistic`",
    "%0 = linalg.fill %x : tensor<2x3xf32>": "only StableHLO, CHLO, MHLO, func and Shardy",
    "%0 = stablehlo.abs %y : tensor<2x3xf32>": "2:6: `%y` is not defined",
    "%0 = stablehlo.abs %x : tensor<3xf32>": r"its shape is f32\[3\].*operands give f32\[2,3\]",
    '%0 = "stablehlo.abs"(%x) : (tensor<3xf32>) -> tensor<3xf32>': r"`%x` is f32\[2,3\]",
    '%0 = "stablehlo.abs"(%x, %x) : (tensor<2x3xf32>) -> tensor<2x3xf32>': "2 operands, 1 types",
    "%0:2 = stablehlo.abs %x : tensor<2x3xf32>": "2 results are named, the type has 1",
    "%x = stablehlo.abs %x : tensor<2x3xf32>": "`%x` is defined twice",
    "%0 = stablehlo.add %x, %i : tensor<2x3xf32>": "operands of add differ",
    "%0 = stablehlo.constant dense<[1, 2]> : tensor<3xi32>": "2 numbers in 1 brackets",
    "%0 = stablehlo.constant dense<[[1], [2, 3]]> : tensor<3xi32>": "3 numbers in 3 brackets",
    "%0 = stablehlo.constant dense<1.5> : tensor<i32>": "`1.5` is not an integer",
    "%0 = stablehlo.constant dense<300> : tensor<i8>": "out of the range of s8",
    '%0 = stablehlo.constant dense<"0x00"> : tensor<3xf32>': "1 bytes for f32",
    '%0 = stablehlo.constant dense<"ab"> : tensor<3xf32>': "HLO has no strings",
    "%0 = stablehlo.constant dense_resource<w> : tensor<3xf32>": "large_elements_limit",
    "%0 = stablehlo.constant 5 : tensor<3xf32>": "expected a literal",
    "%0 = stablehlo.constant dense<1> : tensor<3xf6E2M3FN>": "HLO has no type tensor<3xf6E2M3FN>",
    "%0 = stablehlo.constant dense<1> : tensor<3xf32>": "`1` is not a number with a point",
    "%0 = stablehlo.constant dense<1.0> : tensor<complex<f32>>": "a complex number is a pair",
    "%0 = stablehlo.constant dense<0x13FF0000000000000> : tensor<f64>": "does not fit f64",
    "stablehlo.return %x : tensor<2xf32>": r"`%x` is f32\[2,3\].*the type says f32\[2\]",
    "stablehlo.return %x : tensor<2x3xf32>, tensor<f32>": "1 operands, 2 types",
    "%0 = stablehlo.compare LT, %x, %x, SIGNED : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
    "tensor<2x3xi1>": "f32 is not compared as SIGNED",
    "%0 = stablehlo.real %i : tensor<i32>": "s32 has no real and imaginary part",
    "%0 = stablehlo.concatenate %x, dim = 2 : (tensor<2x3xf32>) -> tensor<2x3xf32>": (
        "not dimensions of rank 2"
    ),
    "%0 = stablehlo.partition_id : tensor<i32>": "a u32",
    '%0 = "stablehlo.if"(%i) ({}, {}) : (tensor<i32>) -> tensor<i32>': "s32 cannot choose",
    "%0 = stablehlo.dot %x, %x, precision = [LOW] : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
    "tensor<2x2xf32>": "precision LOW is not one of",
    '%0 = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<0> : tensor<1x1xi32>} : '
    "(tensor<2x3xf32>) -> tensor<2x3xf32>": "not of 64-bit integers",
    '%0 = "stablehlo.all_to_all"(%x) {concat_dimension = 2 : i64, replica_groups = dense<0> : '
    "tensor<1x1xi64>, split_count = 1 : i64, split_dimension = 0 : i64} : (tensor<2x3xf32>) -> "
    "tensor<2x3xf32>": "are not those of all operands",
    "%0 = stablehlo.iota dim = 7 : tensor<3xi32>": "iota_dimension=7",
    "%0 = stablehlo.iota dim = q : tensor<3xi32>": "`iota_dimension` is not an integer",
    "%0 = stablehlo.transpose %x, dims = [0, 0] : (tensor<2x3xf32>) -> tensor<2x2xf32>": "not dim",
    "%0 = stablehlo.slice %x [0:1] : (tensor<2x3xf32>) -> tensor<1x3xf32>": "1 ranges for",
    "%0 = stablehlo.slice %x [0:1 : (tensor<2x3xf32>) -> tensor<1x3xf32>": "a step, an integer",
    "%0 = stablehlo.compare XX, %x, %x : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>": (
        "is not one of EQ, NE"
    ),
    "%0 = stablehlo.reduce_precision %x, format = f32 : tensor<2x3xf32>": "such as `e5m10`",
    "%0 = call @f(%x) : (tensor<2x3xf32>) -> tensor<f32>": "there is no function `f`",
    "%0 = call @main(%x, %i) : (tensor<2x3xf32>, tensor<i32>) -> tensor<f32>": "calls itself",
    "%0 = stablehlo.dynamic_iota %x, dim = 0 : (tensor<2x3xf32>) -> tensor<?xi32>": (
        "does not follow from constants"
    ),
    "%0 = stablehlo.uniform_quantize %x : (tensor<2x3xf32>) -> tensor<2x3x!quant.uniform<i8:f32,"
    " 1.0>>": "quantized types are not read",
    "%0 = stablehlo.abs %x {a = 1, a = 2} : tensor<2x3xf32>": "attribute `a` is given twice",
    "%0 = stablehlo.abs %x {a = 99999999999999999999} : tensor<2x3xf32>": "does not fit 64 bits",
    "%0 = stablehlo.abs %x : tensor<*xf32>": "has no rank",
    "%0 = stablehlo.abs %x : tensor<99999999999x99999999999xf32>": "is too large",
    "%0 = stablehlo.custom_call @Sharding(%x) : (tensor<2x3xf32>) -> tensor<1x3xf32>": (
        "cuts work for several devices"
    ),
    '"stablehlo.abs"(%x)[^bb1] : (tensor<2x3xf32>) -> ()': "HLO has no jumps",
    "%0 = stablehlo.abs %x : tensor<2x3xf32> §": "found `§`",
}


@pytest.mark.parametrize("operation", BROKEN)
def test_errors_name_the_place_and_the_reason(operation: str) -> None:
    text = f"func.func @main({ARGUMENTS}) -> {X} {{\n{operation}\nreturn %x : {X}\n}}"
    with pytest.raises((ParseError, UnsupportedError), match=BROKEN[operation]) as caught:
        parse(text, "m.mlir")
    assert caught.value.where.startswith("m.mlir:")


MODULES = {
    "": "the module has no function",
    "module {": "expected an operation",
    "module {} module {}": "a second module",
    "func.func private @f(tensor<f32>) -> tensor<f32>": "its body is not in this text",
    "func.func @f(%a: tensor<f32>) { }": "a region returns nothing",
    "func.func @f(%a: tensor<f32>) { return %a : tensor<f32> }": r"it returns \(f32\[\]\)",
    "func.func @f(%a: tensor<?xf32>) { return }": r"argument `%a` of `f` is f32\[\?\].*\n.*export",
    "func.func @f(%a: !x.y<1>) { return }": "HLO has no such type",
    "func.func @f() { return } func.func @f() { return }": "defined twice",
    "func.func @f() { return } func.func @g() { return }": "may all be the entry",
    "func.func @f() { return\nreturn }": "is not the last operation",
    "func.func @f() { ^bb0: return\n^bb1: return }": "several blocks",
    "func.func @f(%a: tensor<f32>, %a: tensor<f32>) { return }": "defined twice",
    "func.func @f() { return } {-# dialect_resources: { b: { w: 0 } } #-}": "`w` is not readable",
    "#a = [1, 2": "the text ends too early|expected",
}


@pytest.mark.parametrize("text", MODULES)
def test_modules_that_are_none(text: str) -> None:
    with pytest.raises((ParseError, UnsupportedError), match=MODULES[text]):
        parse(text)


def test_values_from_around_a_reducer_must_be_constant() -> None:
    text = """func.func @main(%x: tensor<3xf32>, %y: tensor<f32>) -> tensor<f32> {
  %r = "stablehlo.reduce"(%x, %y) <{dimensions = array<i64: 0>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %s = stablehlo.add %p, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}"""
    with pytest.raises(UnsupportedError, match="uses `%y` from around it, which is not a constant"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "func.func @f() attributes {a = " + "[" * 5000 + "} { return }",
        "func.func @f() attributes {a = #stablehlo.x<b = " * 5000,
        "func.func @f(%a: " + "tuple<" * 5000 + ") { return }",
        "func.func @f() { return } loc(" + 'callsite("a" at ' * 5000 + ")",
        "func.func @f() {" + '"stablehlo.case"() ({' * 5000,
        "func.func @f() attributes {a = " + "(" * 5000 + "} { return }",
        "\n".join(
            f"func.func @f{n}() {{ call @f{n + 1}() : () -> ()\nreturn }}" for n in range(3000)
        ).replace("@f0", "@main"),
    ],
    ids=["lists", "fields", "tuples", "locations", "regions", "types", "calls"],
)
def test_nesting_is_limited(text: str) -> None:
    with pytest.raises((ParseError, UnsupportedError), match=r"too deep|expected|no closing"):
        parse(text)


def test_regions_and_calls_count_together() -> None:
    """Each function calls the next from inside ten branches."""
    rows = []
    for n in range(100):
        name = f"f{n}" if n else "main"
        inner = f"%r = func.call @f{n + 1}(%x) : (tensor<i32>) -> tensor<i32>"
        for _ in range(10):
            branch = f"{{ {inner} stablehlo.return %r : tensor<i32> }}"
            inner = f'%r = "stablehlo.case"(%x) ({branch}) : (tensor<i32>) -> tensor<i32>'
        rows.append(f"func.func @{name}(%x: tensor<i32>) -> tensor<i32> {{ {inner}")
        rows.append("return %r : tensor<i32> }")
    with pytest.raises(ParseError, match="regions and calls are nested too deep: over 128 levels"):
        parse("\n".join(rows))


def test_arithmetic_that_never_ends_is_not_done_while_reading(stablehlo: Any) -> None:
    """Each function calls the next a hundred times: 10^10 additions."""
    kind = "tensor<i32>"
    rows = [f"func.func private @f5(%x: {kind}) -> {kind} {{ return %x : {kind} }}"]
    for n in range(5):
        calls = "".join(
            f"%y{k} = call @f{n + 1}(%y{k - 1}) : ({kind}) -> {kind}\n" for k in range(1, 100)
        )
        head = f"func.func private @f{n}(%y0: {kind}) -> {kind} {{\n"
        rows.append(f"{head}{calls}return %y99 : {kind}\n}}")
    rows.append(f"""func.func @main() -> {kind} {{
  %c = stablehlo.constant dense<1> : {kind}
  %0 = call @f0(%c) : ({kind}) -> {kind}
  %1 = stablehlo.reshape %0 : ({kind}) -> tensor<1xi32>
  %2 = stablehlo.dynamic_iota %1, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  return %0 : {kind}
}}""")
    with pytest.raises(UnsupportedError, match="does not follow from constants"):
        stablehlo("\n".join(rows))


def test_locations_that_refer_to_each_other_end() -> None:
    rows = [f"#loc{n} = loc(fused[#loc{n - 1}, #loc{n - 1}, #loc{n}])" for n in range(1, 60)]
    text = "func.func @f() { return loc(#loc59) } loc(#loc0)\n#loc0 = loc(#loc0)\n"
    start = time.perf_counter()
    parse(text + "\n".join(rows))
    assert time.perf_counter() - start < 2


def test_large_values_cost_no_memory(stablehlo: Any) -> None:
    text = """func.func @main() -> tensor<65536x65536xf64> {
  %0 = stablehlo.constant dense<1.0> : tensor<65536x65536xf64>
  return %0 : tensor<65536x65536xf64>
}"""
    assert stablehlo(text).entry.root.opcode == "broadcast"
    blank = "%r = stablehlo.abs %x" + " " * 100_000 + "?" + "\t" * 100_000 + "\x01"
    start = time.perf_counter()
    with pytest.raises(ParseError):
        parse(f"func.func @main() {{ {blank} }}")
    assert time.perf_counter() - start < 2
