"""A small computation for every opcode, as a template over element types.

Each takes ``x`` and ``y`` of type ``$t[4,6]``. The last row is its result, of shape ``result``,
the rows before are what that needs. ``$w`` is the type of a complex number's parts, ``$c`` that of
the complex number whose parts are ``$t``, ``$v`` the type of TABLE's result, ``$u`` the unsigned
type of as many bits, ``$one`` a literal 1, ``$less`` a smaller number.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template

import pytest

from nestwright.ir.dtypes import DType
from nestwright.ir.elementwise import TABLE
from nestwright.ir.hlo.ops.registry import OPS, opcodes

SAME = "$t[4,6]"
ALL = "psufc"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an opcode is used. ``kinds`` are those of element that it is tried with, by letter;
    ``only`` is the one type of an operation that has no other; ``zero``: it needs a zero."""

    opcode: str
    result: str
    rows: str
    uses: str = ""
    kinds: str = ALL
    only: str = ""
    zero: bool = False

    def fits(self, dtype: DType) -> bool:
        """Whether there is such an operation of this element type, as far as kinds tell."""
        if self.zero and dtype.name == "f8e8m0fnu":
            return False
        return dtype.kind[0] in self.kinds and self.only in ("", dtype.name)

    def text(self, dtype: DType, name: str) -> str:
        """The computation, called ``name``."""
        *rows, last = self.rows.strip().split("\n")
        shapes = f"x = {SAME} parameter(0)\n  y = {SAME} parameter(1)"
        body = "\n  ".join(r.strip() for r in (*rows, f"ROOT r = {self.result} {last.strip()}"))
        return _filled(f"{name} {{\n  {shapes}\n  {body}\n}}\n", self.opcode, dtype)

    def shape(self, dtype: DType) -> str:
        """The shape of the result."""
        return _filled(self.result, self.opcode, dtype)


def _filled(text: str, opcode: str, dtype: DType) -> str:
    t = dtype.name
    words = {
        "t": t,
        "op": opcode,
        "one": {"complex": "(1, 0)", "pred": "true"}.get(dtype.kind, "1"),
        "less": "0.5" if t == "f8e8m0fnu" else "0",
        "w": {"c64": "f32", "c128": "f64"}.get(t, t),
        "c": {"f64": "c128", "f32": "c64"}.get(t, t if dtype.kind == "complex" else "c64"),
        "u": "u8" if t == "pred" else f"u{dtype.bits}",
        "v": TABLE[opcode].result_dtype(dtype).name if opcode in TABLE else t,
    }
    return Template(text).substitute(words)


def _pair(name: str, body: str) -> tuple[str, str]:
    rows = f"  a = $t[] parameter(0)\n  b = $t[] parameter(1)\n  {body}\n"
    return name, f"{name} {{\n{rows}}}\n"


COMPUTATIONS = dict(
    (
        _pair("sum", "ROOT r = $t[] add(a, b)"),
        _pair("any", "ROOT r = pred[] compare(a, b), direction=NE"),
        _pair("before", "ROOT r = pred[] compare(a, b), direction=LT"),
        _pair("above", "ROOT r = pred[] compare(a, b), direction=GT"),
        _pair(
            "parts",
            "p = $w[] real(a)\n  q = $w[] real(b)\n  ROOT r = pred[] compare(p, q), direction=LT",
        ),
        _pair("step", "s = $t[] add(a, b)\n  ROOT r = ($t[], $t[]) tuple(s, s)"),
        (
            "whole",
            "whole {\n  a = $t[4,6] parameter(0)\n  ROOT r = $t[4,6] reverse(a), "
            "dimensions={0}\n}\n",
        ),
        ("kept", "kept {\n  a = $t[4,6] parameter(0)\n  ROOT r = $t[4,6] copy(a)\n}\n"),
        ("twice", "twice {\n  a = $t[] parameter(0)\n  ROOT r = $t[] add(a, a)\n}\n"),
        (
            "more",
            "more {\n  s = (s32[], $t[4,6]) parameter(0)\n"
            "  i = s32[] get-tuple-element(s), index=0\n  n = s32[] constant(3)\n"
            "  ROOT r = pred[] compare(i, n), direction=LT\n}\n",
        ),
        (
            "round",
            "round {\n  s = (s32[], $t[4,6]) parameter(0)\n"
            "  i = s32[] get-tuple-element(s), index=0\n  n = s32[] constant(1)\n"
            "  j = s32[] add(i, n)\n  a = $t[4,6] get-tuple-element(s), index=1\n"
            "  b = $t[4,6] reverse(a), dimensions={1}\n"
            "  ROOT r = (s32[], $t[4,6]) tuple(j, b)\n}\n",
        ),
    )
)

PLACE = "i = s32[] constant(1)\n"
PLACES = "i = s32[3,1] constant({{1}, {3}, {1}})\n"
ONE = "z = $t[] constant($one)\n"
TOKEN = "k = token[] after-all()\n"
FEATURES = """f = $t[1,6] slice(y), slice={[0:1], [0:6]}
    s = $t[6] reshape(f)
"""
# A triangle with a unit diagonal and no more is positive definite.
MATRIX = """i = s32[4,4] iota(), iota_dimension=0
    j = s32[4,4] iota(), iota_dimension=1
    e = pred[4,4] compare(i, j), direction=EQ
    m = $t[4,4] convert(e)
"""
GATHER = (
    "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    "slice_sizes={1,6}"
)
SCATTER = (
    "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=sum"
)
ROOTS = """a = $t[1,4,6] reshape(x)
    v = f64[6,2] constant({{1, 0}, {0.5, -0.8660254037844386}, {-0.5, -0.8660254037844386}, \
        {-1, 0}, {-0.5, 0.8660254037844386}, {0.5, 0.8660254037844386}})
    w = $w[6,2] convert(v)
"""
DFT = "dft(a, w), fft_length={6}, dimensions={2,2}, "
PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"

SHAPES = (
    Recipe("parameter", SAME, "copy(x)"),
    Recipe("constant", "$t[3]", "constant({$one, $one, $one})"),
    Recipe("iota", SAME, "iota(), iota_dimension=1", kinds="sufc"),
    Recipe("tuple", f"({SAME}, {SAME})", "tuple(y, x)"),
    Recipe("get-tuple-element", SAME, f"k = ({SAME}, {SAME}) tuple(x, y)\n$op(k), index=1"),
    Recipe("call", SAME, "call(x), to_apply=whole", "whole"),
    Recipe("fusion", SAME, "fusion(x), kind=kLoop, calls=whole", "whole"),
    Recipe(
        "while",
        f"(s32[], {SAME})",
        f"i = s32[] constant(0)\nk = (s32[], {SAME}) tuple(i, x)\n"
        "while(k), condition=more, body=round",
        "more round",
    ),
    Recipe(
        "conditional",
        SAME,
        "k = pred[] constant(true)\nconditional(k, x, y), "
        "true_computation=whole, false_computation=kept",
        "whole kept",
    ),
    Recipe("copy", SAME, "copy(x)"),
    Recipe("bitcast", "$t[24]", "bitcast(x)"),
    Recipe("opt-barrier", SAME, "opt-barrier(x)"),
    Recipe("after-all", SAME, TOKEN + "add-dependency(x, k)"),
    Recipe("add-dependency", SAME, TOKEN + "add-dependency(x, k)"),
    Recipe("domain", SAME, 'domain(x), domain={kind="sharding", entry={replicated}, exit={}}'),
    Recipe("broadcast", "$t[4,6,2]", "broadcast(x), dimensions={0,1}"),
    Recipe("reshape", "$t[3,8]", "reshape(x)"),
    Recipe("transpose", "$t[6,4]", "transpose(x), dimensions={1,0}"),
    Recipe("slice", "$t[2,3]", "slice(x), slice={[0:4:2], [1:4]}"),
    Recipe("concatenate", "$t[8,6]", "concatenate(x, y), dimensions={0}"),
    Recipe("pad", "$t[9,5]", ONE + "pad(x, z), padding=1_1_1x0_-1"),
    Recipe("reverse", SAME, "reverse(x), dimensions={0,1}"),
    Recipe("dynamic-slice", "$t[2,2]", PLACE + "$op(x, i, i), dynamic_slice_sizes={2,2}"),
    Recipe(
        "dynamic-update-slice",
        SAME,
        PLACE + "k = $t[2,3] slice(y), slice={[0:2], [0:3]}\n$op(x, k, i, i)",
    ),
    Recipe("gather", "$t[3,6]", PLACES + f"gather(x, i), {GATHER}"),
    Recipe(
        "scatter",
        SAME,
        PLACES + f"k = $t[3,6] slice(y), slice={{[0:3], [0:6]}}\nscatter(x, i, k), {SCATTER}",
        "sum",
    ),
    Recipe("dynamic-reshape", "$t[24]", "n = s32[] constant(24)\ndynamic-reshape(x, n)"),
    Recipe("get-dimension-size", "s32[]", "$op(x), dimensions={1}"),
    Recipe(
        "set-dimension-size",
        "$t[4]",
        "n = s32[] constant(3)\n"
        "k = $t[<=4,6] $op(x, n), dimensions={0}\n"
        + ONE
        + "s = $t[6] reduce(k, z), dimensions={0}, to_apply=sum\nslice(s), slice={[0:4]}",
        "sum",
        zero=True,
    ),
    Recipe("convert", "f32[4,6]", "convert(x)"),
    Recipe("bitcast-convert", "$u[4,6]", "bitcast-convert(x)", kinds="psuf"),
    Recipe(
        "stochastic-convert",
        "s8[4,6]",
        "n = $u[] constant(1)\nk = $u[4,6] broadcast(n), dimensions={}\n$op(x, k)",
        kinds="f",
    ),
    Recipe("reduce-precision", SAME, "$op(x), exponent_bits=4, mantissa_bits=1", kinds="f"),
    Recipe("compare", "pred[4,6]", "compare(x, y), direction=NE"),
    Recipe("complex", "$c[4,6]", "complex(x, y)", kinds="f"),
    Recipe("real", "$w[4,6]", "real(x)", kinds="fc"),
    Recipe("imag", "$w[4,6]", "imag(x)", kinds="fc"),
)

WORK = (
    Recipe("dot", "$t[4,4]", f"dot(x, y), {PRODUCT}"),
    Recipe(
        "ragged-dot",
        "$t[4,4]",
        "k = $t[1,4,6] reshape(y)\nn = s32[1] constant({4})\n"
        "$op(x, k, n), lhs_contracting_dims={1}, rhs_contracting_dims={2}, "
        "lhs_ragged_dims={0}, rhs_group_dims={0}",
    ),
    Recipe("scaled-dot", "$t[4,4]", f"$op(x, y, x, y), {PRODUCT}", kinds="f"),
    Recipe(
        "convolution",
        "$t[1,3,1]",
        "a = $t[1,4,6] reshape(x)\n"
        "b = $t[2,6] slice(y), slice={[0:2], [0:6]}\nk = $t[2,6,1] reshape(b)\n"
        "$op(a, k), window={size=2}, dim_labels=b0f_0io->b0f",
    ),
    Recipe("reduce", "$t[4]", ONE + "reduce(x, z), dimensions={1}, to_apply=sum", "sum"),
    Recipe(
        "reduce-window",
        "$t[2,3]",
        ONE + "$op(x, z), window={size=2x2 stride=2x2}, to_apply=sum",
        "sum",
    ),
    Recipe(
        "select-and-scatter",
        SAME,
        ONE + "k = $t[2,3] slice(y), slice={[0:2], [0:3]}\n"
        "$op(x, k, z), window={size=2x2 stride=2x2}, select=any, scatter=sum",
        "any sum",
    ),
    Recipe(
        "sort",
        SAME,
        "sort(x), dimensions={1}, is_stable=true, to_apply=before",
        "before",
        kinds="psuf",
    ),
    Recipe(
        "sort", SAME, "sort(x), dimensions={1}, is_stable=true, to_apply=parts", "parts", kinds="c"
    ),
    Recipe("topk", "($t[4,2], s32[4,2])", "topk(x), k=2, largest=true"),
    Recipe(
        "custom-call",
        "($t[4,2], s32[4,2])",
        'custom-call(x), custom_call_target="TopK", called_computations={above}',
        "above",
    ),
    Recipe("map", SAME, "map(x), dimensions={0,1}, to_apply=twice", "twice"),
    Recipe(
        "batch-norm-inference",
        SAME,
        FEATURES + "$op(x, s, s, s, s), epsilon=1, feature_index=1",
        kinds="f",
    ),
    Recipe(
        "batch-norm-training",
        "($t[4,6], $t[6], $t[6])",
        FEATURES + "$op(x, s, s), epsilon=1, feature_index=1",
        kinds="f",
    ),
    Recipe(
        "batch-norm-grad",
        "($t[4,6], $t[6], $t[6])",
        FEATURES + "$op(x, s, s, s, y), epsilon=1, feature_index=1",
        kinds="f",
    ),
    Recipe(
        "rng",
        SAME,
        "a = $t[] constant($less)\nb = $t[] constant(1)\n$op(a, b), distribution=rng_uniform",
        kinds="suf",
    ),
    Recipe(
        "rng-bit-generator",
        "(u64[2], $t[4,6])",
        "s = u64[2] constant({1, 2})\n$op(s), algorithm=rng_three_fry",
        kinds="suf",
    ),
    Recipe("rng-get-and-update-state", "u64[2]", "$op(), delta=1", only="u64"),
    Recipe(
        "scan",
        "($t[4,6], $t[4])",
        "b = $t[4,1] slice(y), slice={[0:4], [0:1]}\n"
        "k = $t[4] reshape(b)\nscan(x, k), dimensions={1}, num_carries=1, to_apply=row",
        "row",
    ),
    Recipe("fft", "$c[4,4]", "fft(x), fft_type=RFFT, fft_length={6}", kinds="f"),
    Recipe("fft", "$c[4,6]", "fft(x), fft_type=FFT, fft_length={6}", kinds="c"),
    Recipe("dft", "$c[1,4,4]", ROOTS + DFT + "fft_type=RFFT", kinds="f"),
    Recipe("dft", "$c[1,4,6]", ROOTS + DFT + "fft_type=FFT", kinds="c"),
    Recipe("cholesky", "$t[4,4]", MATRIX + "cholesky(m), lower=true", kinds="fc", zero=True),
    Recipe(
        "triangular-solve",
        SAME,
        MATRIX + "$op(m, x), left_side=true, lower=true, "
        "unit_diagonal=false, transpose_a=NO_TRANSPOSE",
        kinds="fc",
        zero=True,
    ),
    Recipe("shuffle", SAME, "shuffle(x), dimensions={0}"),
)

COMPUTATIONS["row"] = """row {
  a = $t[4] parameter(0)
  b = $t[4] parameter(1)
  s = $t[4] add(a, b)
  ROOT r = ($t[4], $t[4]) tuple(s, s)
}
"""

STATE = f"k = ({SAME}, {SAME})"
DEVICES = (
    Recipe("all-reduce", SAME, "all-reduce(x), replica_groups={}, to_apply=sum", "sum"),
    Recipe("all-gather", SAME, "all-gather(x), replica_groups={}, dimensions={0}"),
    Recipe("all-to-all", SAME, "all-to-all(x), replica_groups={}, dimensions={0}"),
    Recipe(
        "reduce-scatter", SAME, "$op(x), replica_groups={}, dimensions={0}, to_apply=sum", "sum"
    ),
    Recipe("collective-broadcast", SAME, "$op(x), replica_groups={{0}}"),
    Recipe("collective-permute", SAME, "$op(x), source_target_pairs={{0,0}}"),
    Recipe("collective-reduce", SAME, "$op(x), replica_groups={{0}}, to_apply=sum", "sum"),
    Recipe(
        "ragged-all-to-all",
        SAME,
        "n = s32[1] constant({4})\n$op(x, y, n, n, n, n), replica_groups={{0}}",
    ),
    Recipe("replica-id", "u32[]", "replica-id()", only="u32"),
    Recipe("partition-id", "u32[]", "partition-id()", only="u32"),
    Recipe(
        "infeed", SAME, TOKEN + f"k1 = ({SAME}, token[]) infeed(k)\nget-tuple-element(k1), index=0"
    ),
    Recipe("outfeed", SAME, TOKEN + "k1 = token[] outfeed(x, k)\nadd-dependency(y, k1)"),
    Recipe(
        "send",
        SAME,
        TOKEN + f"k1 = ({SAME}, u32[], token[]) send(x, k), channel_id=1\n"
        "k2 = token[] send-done(k1), channel_id=1\nadd-dependency(y, k2)",
    ),
    Recipe(
        "recv",
        SAME,
        TOKEN + f"k1 = ({SAME}, u32[], token[]) recv(k), channel_id=1\n"
        f"k2 = ({SAME}, token[]) recv-done(k1), channel_id=1\n"
        "get-tuple-element(k2), index=0",
    ),
    Recipe(
        "async-start",
        SAME,
        f"k = (({SAME}), {SAME}, s32[]) $op(x), calls=whole\n"
        f"k1 = (({SAME}), {SAME}, s32[]) async-update(k)\nasync-done(k1)",
        "whole",
    ),
    Recipe("copy-start", SAME, f"k = ({SAME}, {SAME}, u32[]) $op(x)\ncopy-done(k)"),
    Recipe(
        "all-reduce-start",
        SAME,
        f"k = {SAME} $op(x), replica_groups={{}}, to_apply=sum\nall-reduce-done(k)",
        "sum",
    ),
    Recipe(
        "all-gather-start",
        SAME,
        STATE + " $op(x), replica_groups={}, dimensions={0}\nall-gather-done(k)",
    ),
    Recipe(
        "collective-permute-start",
        SAME,
        STATE + " $op(x), source_target_pairs={{0,0}}\ncollective-permute-done(k)",
    ),
)
WITH_THEIR_START = {
    "send-done",
    "recv-done",
    "async-update",
    "async-done",
    "copy-done",
    "all-reduce-done",
    "all-gather-done",
    "collective-permute-done",
}


def _elementwise(opcode: str) -> Recipe:
    match opcode, TABLE[opcode].arity:
        case "select", _:
            rows = "k = pred[4,6] compare(x, y), direction=EQ\nselect(k, x, y)"
            return Recipe(opcode, SAME, rows)
        case "clamp", _:
            return Recipe(opcode, SAME, "clamp(x, y, x)")
        case _, arity:
            return Recipe(opcode, "$v[4,6]", "$op(x, y)" if arity == 2 else "$op(x)")


RECIPES = (*map(_elementwise, sorted(opcodes(lambda op: op.arithmetic))), *SHAPES, *WORK, *DEVICES)
assert {r.opcode for r in RECIPES} | WITH_THEIR_START == set(OPS), "an opcode has no recipe"


@dataclass(frozen=True, slots=True)
class Recipes:
    """All of them, and the module that some of them make for one element type."""

    all: tuple[Recipe, ...] = RECIPES

    def module(self, recipes: list[Recipe], dtype: DType) -> str:
        """Text of a module that calls each of them, and has a tuple of their results."""
        needed = sorted({name for r in recipes for name in r.uses.split()})
        parts = [_filled(COMPUTATIONS[name], "", dtype) for name in needed]
        parts += [r.text(dtype, f"case{n}") for n, r in enumerate(recipes)]
        shapes = [r.shape(dtype) for r in recipes]
        rows = [f"x = {dtype}[4,6] parameter(0)", f"y = {dtype}[4,6] parameter(1)"]
        rows += [f"r{n} = {s} call(x, y), to_apply=case{n}" for n, s in enumerate(shapes)]
        results = ", ".join(f"r{n}" for n in range(len(recipes)))
        rows.append(f"ROOT t = ({', '.join(shapes)}) tuple({results})")
        body = "\n  ".join(rows)
        return "HloModule m\n\n" + "\n".join(parts) + f"\nENTRY main {{\n  {body}\n}}\n"


@pytest.fixture(scope="session")
def recipes() -> Recipes:
    return Recipes()
