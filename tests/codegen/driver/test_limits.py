"""What a few lines of text can make a build do is bounded: folded within a budget, or refused with
the name of the instruction, what it asks for and the limit."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import nestwright as nw
from nestwright.ir.errors import LimitError
from nestwright.ir.frontends.hlo_proto.reader import parse as from_proto
from nestwright.ir.frontends.hlo_proto.writer import to_proto
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.limits import ARRAY_BYTES, CALL_DEPTH, INSTRUCTIONS
from nestwright.ir.hlo.nodes import HloModule
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.passes.simplify.fold_constants import fold_constants

HEAD = """add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = pred[] compare(a, b), direction=LT }
"""
MANY = 1 << 28
GROWTH = 384  # MiB of resident memory that all cases together may add
ADDRESSES = 2 << 30  # bytes of address space that they may ask for


def entry(*rows: str, head: str = "") -> str:
    body = "\n  ".join(rows)
    return f"HloModule h\n{HEAD}{head}ENTRY e {{\n  {body}\n}}\n"


def calls(depth: int, kind: str, twice: bool = True) -> str:
    """``f(n)`` calls ``f(n - 1)`` twice, by a call, a fusion, a map or the branches of a choice."""
    types = "f32[]" if kind == "map" else "f32[4]"
    rows = [f"f0 {{ x = {types} parameter(0)\n ROOT r = {types} add(x, x) }}"]
    for n in range(1, depth):
        once = {
            "call": f"call(x), to_apply=f{n - 1}",
            "fusion": f"fusion(x), kind=kLoop, calls=f{n - 1}",
            "map": f"map(x), dimensions={{}}, to_apply=f{n - 1}",
            "choice": f"conditional(i, x, x), branch_computations={{f{n - 1}, f{n - 1}}}",
        }[kind]
        if kind == "choice":
            rows.append(
                f"f{n} {{ x = f32[4] parameter(0)\n i = s32[] custom-call(x), "
                f'custom_call_target="which"\n ROOT r = f32[4] {once} }}'
            )
        else:
            again = once.replace("(x)", "(a)") if twice else "negate(a)"
            rows.append(
                f"f{n} {{ x = {types} parameter(0)\n a = {types} {once}\n"
                f" ROOT r = {types} {again} }}"
            )
    outer = f"map(x), dimensions={{0}}, to_apply=f{depth - 1}"
    outer = outer if kind == "map" else f"call(x), to_apply=f{depth - 1}"
    return entry("x = f32[4] parameter(0)", f"ROOT r = f32[4] {outer}", head="\n".join(rows) + "\n")


def in_mlir(depth: int) -> str:
    def function(name: str, kind: str, body: str) -> str:
        return (
            f"func.func {kind} @{name}(%x: tensor<4xf32>) -> tensor<4xf32> {{\n{body}\n"
            f"return %r : tensor<4xf32> }}\n"
        )

    def call(result: str, n: int, of: str) -> str:
        return f"{result} = call @f{n}({of}) : (tensor<4xf32>) -> tensor<4xf32>"

    parts = [function("f0", "private", "%r = stablehlo.add %x, %x : tensor<4xf32>")]
    for n in range(1, depth):
        both = f"{call('%a', n - 1, '%x')}\n{call('%r', n - 1, '%a')}"
        parts.append(function(f"f{n}", "private", both))
    parts.append(function("main", "public", call("%r", depth - 1, "%x")))
    return "module @m {\n" + "".join(parts) + "}\n"


CASES = {
    "reduce of iota": entry(
        f"x = f32[{MANY}] iota(), iota_dimension=0",
        "z = f32[] constant(0)",
        "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add",
    ),
    "gather from iota by iota": entry(
        f"x = f32[{MANY}] iota(), iota_dimension=0",
        f"i = s32[{MANY}] iota(), iota_dimension=0",
        f"ROOT g = f32[{MANY}] gather(x, i), offset_dims={{}}, collapsed_slice_dims={{0}}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
    ),
    "slice of iota": entry(
        f"x = f32[{MANY}] iota(), iota_dimension=0",
        "i = s32[] constant(5)",
        "ROOT c = f32[2] dynamic-slice(x, i), dynamic_slice_sizes={2}",
    ),
    "concatenation of iotas": entry(
        f"x = f32[{MANY}] iota(), iota_dimension=0",
        f"c = f32[{2 * MANY}] concatenate(x, x), dimensions={{0}}",
        "z = f32[] constant(0)",
        "ROOT r = f32[] reduce(c, z), dimensions={0}, to_apply=add",
    ),
    "pad of a constant": entry(
        "x = f32[2] constant({1, 2})",
        "z = f32[] constant(0)",
        f"p = f32[{(1 << 40) + 2}] pad(x, z), padding=0_{1 << 40}",
        "ROOT r = f32[] reduce(p, z), dimensions={0}, to_apply=add",
    ),
    "many products of an iota": entry(
        f"x = s32[{1 << 20}] iota(), iota_dimension=0",
        *(
            f"c{n} = s32[] constant({n})\n b{n} = s32[{1 << 20}] broadcast(c{n}), dimensions={{}}\n"
            f" y{n} = s32[{1 << 20}] multiply(x, b{n})"
            for n in range(2, 40)
        ),
        "ROOT t = tuple(" + ", ".join(f"y{n}" for n in range(2, 40)) + ")",
    ),
    "windows of an iota": entry(
        "x = f32[60000] iota(), iota_dimension=0",
        "z = f32[] constant(0)",
        "ROOT r = f32[30001] reduce-window(x, z), window={size=30000}, to_apply=add",
    ),
    "a chain of products": entry(
        "x = f32[256,256] iota(), iota_dimension=0",
        "d0 = f32[256,256] add(x, x)",
        *(
            f"d{n} = f32[256,256] dot(d{n - 1}, x), lhs_contracting_dims={{1}}, "
            "rhs_contracting_dims={0}"
            for n in range(1, 100)
        ),
    ),
    "constants of constants": entry(
        "x0 = f32[2] constant({1, 2})",
        "z = f32[] constant(0)",
        *(
            f"x{n} = f32[{2 << n}] concatenate(x{n - 1}, x{n - 1}), dimensions={{0}}"
            for n in range(1, 30)
        ),
        "ROOT r = f32[] reduce(x29, z), dimensions={0}, to_apply=add",
    ),
    "weights that are a broadcast": entry(
        "x = f32[1,8,8,4096] parameter(0)",
        "c = f32[] constant(2)",
        "w = f32[3,3,4096,65536] broadcast(c), dimensions={}",
        "ROOT r = f32[1,8,8,65536] convolution(x, w), window={size=3x3 pad=1_1x1_1}, "
        "dim_labels=b01f_01io->b01f",
    ),
    "a sum of sums": entry(
        "x0 = f32[64] parameter(0)",
        *(f"x{n} = f32[64] add(x{n - 1}, x{n - 1})" for n in range(1, 99)),
    ),
    "2^58 numbers": entry(
        "x = f32[] parameter(0)", f"ROOT r = f32[{1 << 58}] broadcast(x), dimensions={{}}"
    ),
    "sorted 2^58 numbers": entry(
        f"x = f32[{MANY}] parameter(0)",
        f"y = f32[{MANY},{1 << 30}] broadcast(x), dimensions={{0}}",
        f"s = f32[{MANY},{1 << 30}] sort(y), dimensions={{1}}, to_apply=less",
        "q = f32[1,1] slice(s), slice={[0:1], [0:1]}",
        "ROOT r = f32[] reshape(q)",
    ),
    "random 2^58 numbers": entry(
        "x = u64[2] parameter(0)",
        f"ROOT r = (u64[2], u32[{1 << 58}]) rng-bit-generator(x), algorithm=rng_three_fry",
    ),
    "constants of one number": entry(
        *(f"c{n} = f32[16777216] constant({n})" for n in range(9)),
        "ROOT r = f32[16777216] add(c0, c1)",
    ),
    "tuples of tuples": entry(
        "x0 = f32[2] parameter(0)", *(f"x{n} = tuple(x{n - 1}, x{n - 1})" for n in range(1, 40))
    ),
    "calls": calls(60, "call"),
    "fusions": calls(60, "fusion"),
    "maps": calls(60, "map"),
    "choices": calls(60, "choice"),
    "a few choices": calls(14, "choice"),
    "deep calls": calls(2000, "call", twice=False),
    "calls in MLIR": in_mlir(60),
    "a sort of many": entry(
        "x = f32[8] parameter(0)",
        "ROOT r = (" + ", ".join(["f32[8]"] * 200) + ") sort(" + ", ".join("x" * 200) + "), "
        "dimensions={0}, to_apply=many",
        head="many { "
        + " ".join(f"p{n} = f32[] parameter({n})\n" for n in range(400))
        + "ROOT r = pred[] compare(p0, p1), direction=LT }\n",
    ),
}
BUILT = {
    "reduce of iota",
    "gather from iota by iota",
    "slice of iota",
    "concatenation of iotas",
    "pad of a constant",
    "many products of an iota",
    "windows of an iota",
    "a chain of products",
    "constants of constants",
    "weights that are a broadcast",
    "a sum of sums",
}
"""The others are refused."""

REFUSED = {
    "2^58 numbers": f"`r`: its value takes {1 << 60} bytes: the limit is {ARRAY_BYTES}",
    "sorted 2^58 numbers": f"`y`: its value takes {1 << 60} bytes",
    "random 2^58 numbers": f"its value takes {1 << 60} bytes",
    "constants of one number": "brings them to 335544320 bytes, over 268435456",
    "tuples of tuples": "the shape of `x17` is too large",
    "calls": f"`r` in `f16`: it brings the module to 655310 instructions, with calls inlined: "
    f"the limit is {INSTRUCTIONS}",
    "a few choices": "each branch and body written out",
    "a sort of many": "nested too deep to be compiled",
    "deep calls": f"`a` in `f{CALL_DEPTH + 1}`: it calls {CALL_DEPTH + 1} computations deep",
}
"""What the refusal says."""

CHILD = """
import json, resource, sys
import nestwright as nw
from nestwright.ir.errors import NestwrightError
from nestwright.ir.frontends.load import read_model
import nestwright.codegen.driver.build
nw.register_custom_call("which", lambda call, x: None)
warm = "HloModule w ENTRY e { x = f32[8] parameter(0) ROOT y = f32[8] tanh(x) }"
nw.build(nw.parse(warm), cache=False)
given = json.load(sys.stdin)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + given["addresses"],) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (given["seconds"],) * 2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = {}
for name, text in given["cases"].items():
    try:
        nw.build(read_model(text.encode(), "case"), cache=False)
        found[name] = "built"
    except NestwrightError as error:
        found[name] = f"{type(error).__name__} {error}"
    except BaseException as error:
        found[name] = f"foreign {type(error).__name__} {error}"
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
json.dump({"found": found, "grown": grown >> 10}, sys.stdout)
"""


@pytest.fixture(scope="module")
def child() -> dict[str, str]:
    """What became of each case in one process with little memory."""
    if not sys.platform.startswith("linux"):
        pytest.skip("memory is limited by what Linux has for it")
    given = {"cases": CASES, "addresses": ADDRESSES, "seconds": 200}
    made = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(given), capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr[-2000:]
    answer = json.loads(made.stdout)
    assert answer["grown"] < GROWTH, answer
    return dict(answer["found"])


@pytest.mark.parametrize("name", CASES)
def test_small_texts_stay_small(child: dict[str, str], name: str) -> None:
    if name in BUILT:
        assert child[name] == "built"
    else:
        assert child[name].startswith(("LimitError ", "ParseError "))
        assert REFUSED.get(name, "the limit is") in child[name]


def test_a_refusal_holds_its_numbers() -> None:
    with pytest.raises(LimitError) as refusal:
        nw.build(parse(CASES["2^58 numbers"]), cache=False)
    assert (refusal.value.asked, refusal.value.limit) == (1 << 60, ARRAY_BYTES)


def test_protos_have_the_same_limits() -> None:
    module = parse(calls(60, "call"))
    with pytest.raises(LimitError, match="calls inlined"):
        optimize(from_proto(to_proto(module), "p"))


@pytest.mark.parametrize("kind", ["call", "fusion"])
def test_calls_within_the_limits_are_computed(kind: str) -> None:
    x = np.ones(4, np.float32)
    exe = nw.build(parse(calls(7, kind)), cache=False)
    np.testing.assert_array_equal(exe(x), np.float32(2.0**64) * x)
    deep = parse(calls(CALL_DEPTH, "call", twice=False))
    wanted = x * 2 * (-1) ** (CALL_DEPTH - 1)  # every call but the innermost negates
    np.testing.assert_array_equal(nw.build(deep, cache=False)(x), wanted)


def opcodes(module: HloModule) -> list[str]:
    return [i.opcode for i in fold_constants(module).entry.instructions]


def test_folding_has_a_budget_that_weights_raise() -> None:
    """An iota is folded while it is small; a constant is folded whatever its size."""

    def sum_of(size: int) -> HloModule:
        return parse(CASES["reduce of iota"].replace(str(MANY), str(size)))

    assert "reduce" not in opcodes(sum_of(1 << 20))
    assert "reduce" in opcodes(sum_of(1 << 25))
    rows = ("w = f32[8388608] constant(3)", "ROOT r = f32[8388608] negate(w)")
    module = parse(entry(*rows))  # 32 MiB
    assert "negate" not in opcodes(module)
    again = [f"r{n} = f32[8388608] negate(w)" for n in range(9)]
    root = "ROOT t = tuple(" + ", ".join(f"r{n}" for n in range(9)) + ")"
    assert opcodes(parse(entry(rows[0], *again, root))).count("negate") == 5


def test_a_plan_may_be_long_where_the_module_is() -> None:
    """Only what is written out again and again has a limit of its own."""
    rows = [f"x{n} = f32[2] sort(x{n - 1}), dimensions={{0}}, to_apply=less" for n in range(1, 40)]
    module = parse(entry("x0 = f32[2] parameter(0)", *rows))
    x = np.array([2, 1], np.float32)
    np.testing.assert_array_equal(nw.build(module, cache=False)(x), [1, 2])
