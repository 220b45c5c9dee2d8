"""Inlining, dead and equal code, constants, frozen parameters, layouts, and the whole pipeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nestwright.ir.errors import ArgumentError, VerifyError
from nestwright.ir.hlo import parse, show
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.passes.prepare.drop_layouts import drop_layouts
from nestwright.ir.hlo.passes.prepare.freeze_parameters import freeze
from nestwright.ir.hlo.passes.prepare.inline_calls import inline_calls
from nestwright.ir.hlo.passes.simplify.cse import cse
from nestwright.ir.hlo.passes.simplify.dce import dce
from nestwright.ir.hlo.passes.simplify.fold_batch_norm import fold_batch_norm
from nestwright.ir.hlo.passes.simplify.fold_constants import fold_constants
from nestwright.ir.hlo.passes.simplify.split_sums import split_sums
from nestwright.ir.passes import BrokenPassError, Dump, Pass, Pipeline, Timing, Verify, repeat

CORPUS = Path(__file__).parents[5] / "shared/corpus/models"
SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"


def entry(body: str) -> str:
    return f"ENTRY main {{ {body} }}"


TWICE = "twice { a = f32[3] parameter(0) ROOT s = f32[3] add(a, a) }\n"
INLINED = "x = f32[3] parameter(0)  s = f32[3] add(x, x)  ROOT t = f32[3] add(s, s)"


@pytest.mark.parametrize("how", ["call(@), to_apply=twice", "fusion(@), kind=kLoop, calls=twice"])
def test_calls_and_fusions_are_inlined(how, becomes):
    first, second = how.replace("@", "x"), how.replace("@", "c")
    body = f"x = f32[3] parameter(0)  c = f32[3] {first}  ROOT d = f32[3] {second}"
    becomes(inline_calls, TWICE + entry(body), entry(INLINED))


def test_map_works_on_whole_arrays(becomes):
    f = (
        "f { a = f32[] parameter(0) k = f32[] constant(2) m = f32[] multiply(a, k)"
        " ROOT n = f32[] negate(m) }\n"
    )
    before = "x = f32[3] parameter(0)  ROOT m = f32[3] map(x), dimensions={0}, to_apply=f"
    after = (
        "x = f32[3] parameter(0)  k = f32[] constant(2)  b = f32[3] broadcast(k), dimensions={}"
        "  m = f32[3] multiply(x, b)  ROOT n = f32[3] negate(m)"
    )
    becomes(inline_calls, f + entry(before), entry(after))


@pytest.mark.parametrize("index, taken", [(0, "negate"), (1, "abs"), (7, "abs"), (-1, "abs")])
def test_known_branch_is_inlined(index, taken, becomes):
    branches = "".join(
        f"{op}_b {{ a = f32[3] parameter(0) ROOT r = f32[3] {op}(a) }}\n"
        for op in ("negate", "abs")
    )
    before = (
        f"x = f32[3] parameter(0)  i = s32[] constant({index})"
        "  ROOT c = f32[3] conditional(i, x, x), branch_computations={negate_b, abs_b}"
    )
    after = f"x = f32[3] parameter(0)  ROOT r = f32[3] {taken}(x)"
    becomes(inline_calls, branches + entry(before), entry(after))


def test_equal_instructions_are_one(becomes):
    before = (
        "x = f32[3] parameter(0)  k = f32[] constant(2)  l = f32[] constant(2)"
        "  a = f32[3] broadcast(k), dimensions={}  b = f32[3] broadcast(l), dimensions={}"
        "  m = f32[3] multiply(x, a)  n = f32[3] multiply(x, b)  ROOT r = f32[3] add(m, n)"
    )
    after = (
        "x = f32[3] parameter(0)  k = f32[] constant(2)  a = f32[3] broadcast(k), dimensions={}"
        "  m = f32[3] multiply(x, a)  ROOT r = f32[3] add(m, m)"
    )
    becomes(cse, entry(before), entry(after))


def test_equal_reducers_are_one():
    other = SUM.replace("sum", "total").replace("a", "p").replace("pdd(p, b)", "add(p, b)")
    other = other.replace("pprpmeter", "parameter").replace("totpl", "total")
    body = (
        "x = f32[3,4] parameter(0)  z = f32[] constant(0)"
        "  r = f32[3] reduce(x, z), dimensions={1}, to_apply=sum"
        "  s = f32[3] reduce(x, z), dimensions={1}, to_apply=total  ROOT t = f32[3] add(r, s)"
    )
    new = cse(parse(f"HloModule t\n{SUM}{other}{entry(body)}"))
    assert [c.name for c in new.computations] == ["sum", "main"]
    assert sum(i.opcode == "reduce" for i in new.entry.instructions) == 1


def test_tuples_of_constants_are_compared_exactly(becomes):
    pair = " = (f64[1], s32[]) constant(({1.0000000000}, 2))  "
    near = pair.replace("00}", "01}")
    last = "ROOT t = ((f64[1], s32[]), (f64[1], s32[])) tuple"
    becomes(cse, entry(f"a{pair}b{near}{last}(a, b)"), None)
    becomes(cse, entry(f"a{pair}b{pair}{last}(a, b)"), entry(f"a{pair}{last}(a, a)"))


def test_random_numbers_are_never_shared(becomes):
    draw = " = f32[3] rng(a, b), distribution=rng_uniform  "
    body = f"a = f32[] constant(0)  b = f32[] constant(1)  r{draw}s{draw}ROOT t = f32[3] add(r, s)"
    becomes(cse, entry(body), None)


def test_dead_code_goes_and_parameters_stay():
    text = "HloModule t\nENTRY main { x = f32[3] parameter(0)  y = f32[3] parameter(1)"
    module = parse(text + "  n = f32[3] negate(x)  ROOT a = f32[3] abs(x) }")
    new = dce(module)
    assert [i.name for i in new.entry.instructions] == ["x", "y", "a"]
    assert dce(new) is new


FOLDED = {
    "transposed": (
        "c = f32[2,3] constant({ {1,2,3}, {4,5,6} })"
        "  ROOT t = f32[3,2] transpose(c), dimensions={1,0}",
        "ROOT t = f32[3,2] constant({ {1,4}, {2,5}, {3,6} })",
    ),
    "scaled": (
        "c = f32[2] constant({1,2})  k = f32[] constant(3)"
        "  b = f32[2] broadcast(k), dimensions={}  ROOT m = f32[2] multiply(c, b)",
        "ROOT m = f32[2] constant({3,6})",
    ),
}


@pytest.mark.parametrize("name", FOLDED)
def test_constants_are_folded(name, becomes):
    before, after = FOLDED[name]
    becomes(fold_constants, entry(before), entry(after))


@pytest.mark.parametrize("dtype", ["s32", "f32"])
def test_sums_of_codes_are_folded(dtype):
    """Converted they are four times as large, but their sums are few."""
    text = (
        "add { a = TYPE[] parameter(0)  b = TYPE[] parameter(1)  ROOT s = TYPE[] add(a, b) }"
        " ENTRY main { w = s8[300,7000] parameter(0)  c = TYPE[300,7000] convert(w)"
        "  z = TYPE[] constant(0)"
        "  ROOT r = TYPE[7000] reduce(c, z), dimensions={0}, to_apply=add }"
    )
    codes = np.random.default_rng(0).integers(-128, 128, (300, 7000)).astype(np.int8)
    module = freeze(parse("HloModule sums " + text.replace("TYPE", dtype)), {"w": codes})
    root = fold_constants(module).entry.root
    assert root.opcode == "constant"
    np.testing.assert_array_equal(root.attrs["literal"], codes.sum(0, dtype=np.int32))


@pytest.mark.parametrize(("code", "folded"), [("s8", False), ("u8", False), ("s16", True)])
def test_codes_of_a_byte_are_not_made_floats(code, folded, becomes):
    """A product may multiply the codes instead."""
    before = f"c = {code}[2,2] constant({{ {{1,2}}, {{3,4}} }})  ROOT f = f32[2,2] convert(c)"
    after = "ROOT f = f32[2,2] constant({ {1,2}, {3,4} })"
    becomes(fold_constants, entry(before), entry(after) if folded else None)


def test_folding_makes_nothing_big(becomes):
    big = "c = f32[2] constant({1,2})  b = f32[2,9999] broadcast(c), dimensions={0}"
    becomes(fold_constants, entry(f"{big}  ROOT n = f32[2,9999] negate(b)"), None)
    becomes(fold_constants, entry("i = s32[9] iota(), iota_dimension=0"), None)


@pytest.mark.parametrize(("rows", "folded"), [(300, True), (9000, False)])
def test_products_of_weights_are_folded_unless_large(rows, folded):
    """As of position embeddings and their projection; ``rows`` of 350 x 350."""
    text = (
        f"x = f32[{rows},350] parameter(0)  w = f32[350,350] parameter(1)"
        "  y = f32[350] parameter(2)"
        f"  d = f32[{rows},350] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        f"  ROOT r = f32[{rows}] dot(d, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )
    module = parse(f"HloModule t\n{entry(text)}")
    x, w, y = random_arguments(module.entry)
    new = fold_constants(freeze(module, {"x": x, "w": w}))
    dots = [i.opcode for i in new.entry.instructions].count("dot")
    assert dots == (1 if folded else 2)
    np.testing.assert_allclose(evaluate(new, [y]), x @ w @ y, rtol=1e-3, atol=1e-3)


def test_what_is_folded_can_be_simplified(becomes):
    before = "c = f32[3] constant({1,2,3})  ROOT r = f32[3] reverse(c), dimensions={0}"
    becomes(optimize, entry(before), entry("ROOT r = f32[3] constant({3,2,1})"))


DENSE = (
    "ENTRY main { w = f32[4,3] parameter(0)  x = f32[2,4] parameter(1)  b = f32[3] parameter(2)"
    "  d = f32[2,3] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    "  c = f32[2,3] broadcast(b), dimensions={1}  ROOT s = f32[2,3] add(d, c) }"
)


@pytest.mark.parametrize("keys", [(0, 2), ("w", "b"), ("0", 2)])
def test_frozen_parameters(keys):
    module = parse(f"HloModule dense\n{DENSE}")
    w, x, b = random_arguments(module.entry)
    new = freeze(module, dict(zip(keys, (w, b), strict=True)))
    assert [(p.name, p.attrs["number"]) for p in new.entry.parameters] == [("x", 0)]
    np.testing.assert_array_equal(evaluate(new, [x]), evaluate(module, [w, x, b]))


def test_frozen_parameters_of_the_other_byte_order():
    module = parse(f"HloModule dense\n{DENSE}")
    w, x, b = random_arguments(module.entry)
    new = freeze(module, {0: w.byteswap().view(w.dtype.newbyteorder()), 2: b})
    np.testing.assert_array_equal(evaluate(new, [x]), evaluate(module, [w, x, b]))


@pytest.mark.parametrize(
    "constants, message",
    [
        ({5: np.zeros((4, 3), np.float32)}, "no parameter 5: the program has 3 parameters"),
        ({"v": np.zeros((4, 3), np.float32)}, "no parameter called `v`"),
        ({0: np.zeros((3, 4), np.float32)}, r"takes f32\[4,3\], the array is float32\[3, 4\]"),
        ({"w": np.zeros((4, 3))}, r"takes f32\[4,3\], the array is float64"),
        ({0: np.zeros((4, 3), np.float32), "w": np.zeros((4, 3), np.float32)}, "frozen twice"),
    ],
)
def test_freezing_refuses(constants, message):
    with pytest.raises(ArgumentError, match=message):
        freeze(parse(f"HloModule dense\n{DENSE}"), constants)


AFFINE = {
    "batch norm": (
        "m = f32[2,3] multiply(d, s)  ROOT a = f32[2,3] add(m, t)",
        {"dot", "add"},
    ),
    "bias, mean, deviation": (
        "a = f32[2,3] add(t, d)  e = f32[2,3] subtract(a, s)  ROOT v = f32[2,3] divide(e, s)",
        {"dot", "add"},
    ),
    "scale alone": ("ROOT m = f32[2,3] multiply(s, d)", {"dot"}),
    "from a constant": ("ROOT m = f32[2,3] subtract(t, d)", {"dot", "add"}),
}


@pytest.mark.parametrize("name", AFFINE)
def test_scales_go_into_constant_weights(name, same_meaning):
    tail, wanted = AFFINE[name]
    body = (
        "x = f32[2,4] parameter(0)"
        "  w = f32[4,3] constant({ {1,2,3}, {4,5,6}, {-1,0,2}, {3,-3,1} })"
        "  p = f32[3] constant({2,0.5,-3})  q = f32[3] constant({1,-1,4})"
        "  s = f32[2,3] broadcast(p), dimensions={1}  t = f32[2,3] broadcast(q), dimensions={1}"
        f"  d = f32[2,3] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}  {tail}"
    )
    old = parse(f"HloModule t\n{entry(body)}")
    new = fold_batch_norm(old)
    work = {i.opcode for i in new.entry.instructions}
    assert work - {"parameter", "constant", "broadcast"} == wanted
    same_meaning(old, new)


def test_scale_of_a_value_used_twice_stays(becomes):
    body = (
        "x = f32[2,2] parameter(0)  w = f32[2,2] constant({ {1,2}, {4,5} })"
        "  p = f32[2] constant({2,3})  s = f32[2,2] broadcast(p), dimensions={1}"
        "  d = f32[2,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        "  m = f32[2,2] multiply(d, s)  ROOT r = f32[2,2] add(m, d)"
    )
    becomes(fold_batch_norm, entry(body), None)


@pytest.mark.parametrize(("dtype", "scale"), [("f16", "1e-5"), ("f32", "1e-38"), ("f32", "3e38")])
def test_scale_that_leaves_no_normal_numbers_stays(dtype, scale, becomes):
    """Rounded to multiples of the least subnormal, or infinite, the weights would be lost."""
    body = (
        f"x = {dtype}[2,2] parameter(0)  w = {dtype}[2,2] constant({{ {{0.1,2}}, {{0.5,0.5}} }})"
        f"  p = {dtype}[] constant({scale})  s = {dtype}[2,2] broadcast(p), dimensions={{}}"
        f"  d = {dtype}[2,2] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        f"  ROOT m = {dtype}[2,2] multiply(d, s)"
    )
    becomes(fold_batch_norm, entry(body), None)


def test_layouts_are_forgotten_and_bitcasts_spelled_out():
    module = parse(
        "HloModule t\nENTRY main { x = f32[2,3]{0,1} parameter(0)"
        "  c = f32[2,3]{1,0} copy(x)  b = f32[3,2]{1,0} bitcast(x)  r = f32[6]{0} bitcast(x)"
        "  ROOT t = (f32[2,3], f32[3,2], f32[6]) tuple(c, b, r) }"
    )
    new = drop_layouts(module)
    assert {i.opcode for i in new.entry.instructions} <= {
        "parameter",
        "transpose",
        "reshape",
        "tuple",
    }
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    same, turned, line = evaluate(new, [x])
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(turned, x.T)
    np.testing.assert_array_equal(line, x.T.ravel())


SMALL_MODELS = [
    "attention_gqa_bf16",
    "mandelbrot_while",
    "mnist_mlp_train_step",
    "op_associative_scan",
    "op_conv_depthwise",
    "op_conv_transpose",
    "op_gelu_erf_layernorm",
    "op_max_pool_grad",
    "op_take_rows",
    "reductions_forward",
    "tf_image_ops",
    "tf_keras_convnet_forward",
    "tf_train_mnist",
    "torch_convnet_forward",
    "vit_tiny_forward",
    "bert_tiny_forward",
]


@pytest.mark.corpus
@pytest.mark.parametrize("name", SMALL_MODELS)
def test_pipeline_keeps_the_meaning_of_models(name, same_meaning):
    path = CORPUS / f"{name}.hlo"
    if not path.is_file():
        pytest.skip("the corpus is not beside this checkout")
    old = parse(path.read_text())
    new = optimize(old)
    same_meaning(old, new, 2e-2 if "bf16" in name else 1e-3)
    shown = show(new)
    assert show(parse(shown)) == shown
    assert optimize(new).entry.instructions and not any(
        i.opcode in ("call", "fusion", "copy", "map")
        for c in new.computations
        for i in c.instructions
    )


def _double(x: int) -> int:
    """Twice the number."""
    return 2 * x


def _keep(x: int) -> int:
    return x


NUMBERS = Pipeline((Pass("double", _double), Pass("keep", _keep), Pass("again", _double)))


def test_pipeline_dumps_what_changed(tmp_path):
    dump = Dump(str, tmp_path / "made", "txt")
    assert NUMBERS.run(3, [dump]) == 12
    assert {p.name: p.read_text() for p in dump.written} == {
        "00_input.txt": "3",
        "01_double.txt": "6",
        "03_again.txt": "12",
    }
    assert sorted((tmp_path / "made").iterdir()) == dump.written


def test_passes_are_listed_and_timed():
    timing = Timing(lambda x: 10 * x)
    NUMBERS.run(3, [timing])
    assert [(r.number, r.name, r.changed, r.size) for r in timing.rows] == [
        (0, "input", True, 30),
        (1, "double", True, 60),
        (2, "keep", False, 60),
        (3, "again", True, 120),
    ]
    assert timing.rows[0].seconds == 0 and all(r.seconds >= 0 for r in timing.rows)
    assert repeat("both", NUMBERS.passes, limit=1).parts == ("double", "keep", "again")


def test_broken_pass_is_named_and_its_result_dumped(tmp_path):
    def below_ten(x: int) -> None:
        if x > 10:
            raise VerifyError(f"{x} is too big")

    dump = Dump(str, tmp_path, "txt")
    with pytest.raises(BrokenPassError, match="pass 3, again, broke the program: 12 is too big"):
        NUMBERS.run(3, [dump, Verify(below_ten)])
    assert dump.written[-1].read_text() == "12"
    assert Pipeline(NUMBERS.passes[1:2]).run(11, [Verify(below_ten)]) == 11, "the input's fault"


def test_repeat_ends_when_nothing_changes_or_at_the_limit():
    seen: list[int] = []

    def once_below_ten(x: int) -> int:
        seen.append(x)
        return x + 1 if x < 10 else x

    assert repeat("grow", (Pass("p", once_below_ten),), limit=100).run(8) == 10
    assert seen == [8, 9, 10]
    assert repeat("grow", (Pass("p", once_below_ten),), limit=1).run(0) == 1


@pytest.mark.corpus
def test_expanded_erfc_is_read_back():
    path = CORPUS / "op_gelu_erf_layernorm.hlo"
    if not path.is_file():
        pytest.skip("the corpus is not beside this checkout")
    text = path.read_text()
    opcodes = [i.opcode for i in optimize(parse(text)).entry.instructions]
    assert opcodes.count("erfc") == 1 and "exponential" not in opcodes
    other = text.replace("7.85386146e-05", "7.95386146e-05")
    assert other != text
    assert "erfc" not in [i.opcode for i in optimize(parse(other)).entry.instructions]


def test_long_sums_over_columns_take_several_steps():
    body = "x = f32[8,40,50,16] parameter(0)  z = f32[] parameter(1)"
    reduced = "ROOT r = f32[16] reduce(x, z), dimensions={0,1,2}, to_apply=sum"
    module = split_sums(parse("HloModule m\n" + SUM + entry(f"{body}  {reduced}")))
    sums = [i for i in module.entry.instructions if i.opcode == "reduce"]
    assert [i.attrs["dimensions"] for i in sums] == [(2,), (0, 1)]
    x = np.random.default_rng(0).standard_normal((8, 40, 50, 16)).astype(np.float32) + 1
    found = evaluate(module, [x, np.float32(3)])
    np.testing.assert_allclose(found, x.sum((0, 1, 2), dtype=np.float64) + 3, rtol=1e-6)


@pytest.mark.parametrize(
    "reduced",
    [
        "ROOT r = f32[8] reduce(x, z), dimensions={1,2,3}, to_apply=sum",  # along the fastest
        "ROOT r = f32[8,40,16] reduce(x, z), dimensions={2}, to_apply=sum",  # one dimension
    ],
)
def test_other_sums_stay_whole(reduced):
    body = "x = f32[8,40,50,16] parameter(0)  z = f32[] parameter(1)"
    module = parse("HloModule m\n" + SUM + entry(f"{body}  {reduced}"))
    assert split_sums(module) is module
