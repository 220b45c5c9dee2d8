"""Hostile models: whatever bytes come, reading and verifying succeed or raise the typed error.

Cases are edits of whole models and random programs, drawn from the case's number. The suite tries
some thousands; ``NESTWRIGHT_FUZZ=1000000 pytest tests/ir/test_fuzz.py`` tries that many of each.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from nestwright.ir.errors import NestwrightError
from nestwright.ir.frontends.hlo_proto import reader as protos
from nestwright.ir.frontends.hlo_proto.writer import to_proto
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.text import parse, show
from nestwright.ir.hlo.verify import verify
from nestwright.ir.load import read_model

ROOT = Path(__file__).parents[3]
CASES = int(os.environ.get("NESTWRIGHT_FUZZ", "0"))
SECONDS = 10  # for one case


@dataclass
class Told:
    """How the cases of one kind ended."""

    read: int = 0
    refused: int = 0


def outcome(read: Callable[[], HloModule], number: int, told: Told) -> HloModule | None:
    """Read and verify; anything but success or the typed error ends the test."""
    try:
        with time_limit():
            module = read()
            verify(module)
    except NestwrightError as error:
        assert error.what and str(error)
        told.refused += 1
        return None
    except BaseException as error:
        pytest.fail(f"case {number}: {type(error).__name__}: {error}")
    told.read += 1
    return module


@contextmanager
def time_limit() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError(f"over {SECONDS} s")

    old = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def cases(few: int) -> range:
    return range(CASES or few)


HLO = (
    """HloModule all, entry_computation_layout={(f32[2,3]{1,0},s32[4]{0})->(f32[2], s32[4])}
less { p.0 = s32[] parameter(0)  p.1 = s32[] parameter(1)
  ROOT lt = pred[] compare(p.0, p.1), direction=LT }
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
again { t = (s32[], f32[2]) parameter(0)  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)  ROOT go = pred[] compare(i, n), direction=LT }
turn { t = (s32[], f32[2]) parameter(0)  i = s32[] get-tuple-element(t), index=0
  one = s32[] constant(1)  j = s32[] add(i, one)  x = f32[2] get-tuple-element(t), index=1
  ROOT r = (s32[], f32[2]) tuple(j, x) }
ENTRY main {
  x = f32[2,3]{1,0} parameter(0), metadata={op_name="a/b" source_file="f.py" source_line=3}
  k = s32[4]{0} parameter(1), sharding={replicated}
  z = f32[] constant(0)
  r = f32[2] reduce(x, z), dimensions={1}, to_apply=sum
  i = s32[] constant(0)
  t = (s32[], f32[2]) tuple(i, r)
  w = (s32[], f32[2]) while(t), condition=again, body=turn
  y = f32[2] get-tuple-element(w), index=1
  q = s32[4] sort(k), dimensions={0}, is_stable=true, to_apply=less
  ROOT out = (f32[2], s32[4]) tuple(y, q)
}
""",
    """HloModule more
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[1,8,8,3] parameter(0)
  k = f32[3,3,3,4] constant({...})
  c = f32[1,4,4,4] convolution(x, k), window={size=3x3 stride=2x2 pad=1_0x1_0 rhs_reversal=1x0},
    dim_labels=b01f_01io->b01f, feature_group_count=1, backend_config={"a":{"b":[1,2]}}
  z = f32[] constant(-inf)
  w = f32[1,2,2,4] reduce-window(c, z), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=sum
  i = s32[2,1] constant({{0},{1}})
  g = f32[2,2,2,4] gather(w, i), offset_dims={1,2,3}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,2,2,4}
  h = c64[2]{0:T(8,128)} constant({(1,2), (nan,-inf)})
  d = f32[<=2] set-dimension-size(r, m), dimensions={0}
  p = f32[4,2,2,4] pad(g, z), padding=1_1x0_0_0x-1_1x0_0
  ROOT s = f32[1,1]{1,0} custom-call(p), custom_call_target="f", api_version=API_VERSION_TYPED_FFI
}
""",
)
STABLEHLO = (
    """module @m attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(
      %arg0: tensor<2x3xf32> {mhlo.sharding = "{replicated}"}, %arg1: tensor<4xi32>)
      -> (tensor<2xf32> {jax.result_info = "[0]"}, tensor<4xi32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32> loc(#loc1)
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [1]
      : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %1 = call @helper(%0) : (tensor<2xf32>) -> tensor<2xf32>
    %2 = "stablehlo.sort"(%arg1) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %c = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }) : (tensor<4xi32>) -> tensor<4xi32>
    return %1, %2 : tensor<2xf32>, tensor<4xi32>
  }
  func.func private @helper(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = chlo.asinh %arg0 : tensor<2xf32> -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
#loc1 = loc("f.py":1:2)
""",
    """module {
  func.func @main(%x: tensor<1x8x8x3xf32>, %i: tensor<i32>) -> tensor<*xf32> {
    %k = stablehlo.constant dense<"0x0000803F0000"> : tensor<3x3x3x4xf32>
    %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {stride = [2, 2], pad = [[1, 0], [1, 0]], rhs_dilate = [1, 1]}
      {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x4x4x4xf32>
    %c = stablehlo.constant dense<[1, -2]> : tensor<2xi64>
    %1:2 = stablehlo.while(%a = %i, %b = %0) : tensor<i32>, tensor<1x4x4x4xf32>
    cond {
      %t = stablehlo.compare LT, %a, %a : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    } do {
      stablehlo.return %a, %b : tensor<i32>, tensor<1x4x4x4xf32>
    }
    %2 = stablehlo.slice %1#1 [0:1, 0:4:2, 0:4, 1:3] : (tensor<1x4x4x4xf32>) -> tensor<1x2x4x2xf32>
    %3 = stablehlo.pad %2, %i, low = [0, 0, -1, 0], high = [0, 0, 0, 0], interior = [0, 1, 0, 0] : x
    return %3 : tensor<*xf32>
  }
}
""",
)
WORDS = (
    b"parameter(0)", b"ROOT", b"ENTRY", b"constant({...})", b"to_apply=sum", b"dimensions={0}",
    b"f32[", b"(f32[2], (s32[], token[]))", b"{1,0:T(8,128)S(1)}", b"window={size=", b"calls=",
    b"f32[<=9]", b"u4[3]", b"c128[]", b"->", b"/*", b"*/", b"//", b'"', b"\\", b"\x00", b"%", b"#",
    b"tensor<", b"tensor<?xf32>", b"dense<", b"loc(", b"({", b"^bb0", b"!stablehlo.token", b"%0:3",
    b"stablehlo.add", b"chlo.top_k", b"func.func", b"#stablehlo.gather<", b"array<i64: 1>", b"\xff",
)  # fmt: skip


def corpus(folder: str, ending: str, largest: int = 4000) -> list[bytes]:
    """Small files of the corpus, where there is one."""
    found = ROOT.parent.joinpath("shared", "corpus", folder).rglob(f"*{ending}")
    small = sorted(p for p in found if p.stat().st_size <= largest)
    return [p.read_bytes() for p in small[:: max(1, len(small) // 40)]]


def test_edited_hlo(fuzz) -> None:
    seeds = [t.encode() for t in HLO] + [p.read_bytes() for p in (ROOT / "examples").glob("s*.hlo")]
    told = Told()
    for number in cases(3000):
        rng = Random(number)
        data = fuzz.mutate(rng, rng.choice(seeds), seeds, WORDS)
        module = outcome(lambda d=data: read_model(d, "m.hlo"), number, told)
        if module is not None:
            assert show(parse(show(module))) == show(module), number
    assert told.read > 20 and told.refused > 100


def test_random_programs(fuzz) -> None:
    told = Told()
    for number in cases(2000):
        text = fuzz.random_hlo(Random(number))
        module = outcome(lambda t=text: parse(t), number, told)
        if module is not None:
            assert show(parse(show(module))) == show(module), number
    assert told.read > 20 and told.refused > 100


def test_edited_stablehlo(fuzz) -> None:
    seeds = [t.encode() for t in STABLEHLO] + corpus("stablehlo_testdata/mlir", ".mlir")
    told = Told()
    for number in cases(2500):
        rng = Random(number)
        data = fuzz.mutate(rng, rng.choice(seeds), seeds, WORDS)
        outcome(lambda d=data: read_model(d, "m.mlir"), number, told)
    assert told.read > 5 and told.refused > 100


def test_edited_protos(fuzz) -> None:
    texts = [HLO[0], *(p.read_text() for p in sorted((ROOT / "examples").glob("s*.hlo")))]
    seeds = [to_proto(parse(t)) for t in texts]
    seeds += [p.read_bytes() for p in sorted((ROOT / "tests").rglob("*.pb"))]
    told = Told()
    for number in cases(2500):
        rng = Random(number)
        data = fuzz.mutate(rng, rng.choice(seeds), seeds, [b"\x0a", b"\xff" * 9, b"\x80" * 20])
        outcome(lambda d=data: protos.parse(d, "m.pb"), number, told)
    assert told.read > 5 and told.refused > 100


def test_any_bytes() -> None:
    told = Told()
    for number in cases(500):
        rng = Random(number)
        data = rng.randbytes(rng.choice((0, 1, 7, 100, 3000)))
        outcome(lambda d=data: read_model(d, "m"), number, told)
    assert told.refused > 100
