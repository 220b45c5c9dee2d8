"""FuseOps: what must be one group, what must not, why, and that the groups compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.inputs import random_arguments
from nestwright.ir.hlo.fuse.fusion import Fusion, fuse, show_fusion
from nestwright.ir.hlo.fuse.kinds import is_part
from nestwright.ir.hlo.interp.evaluate import evaluate_computation
from nestwright.ir.hlo.nodes import Computation, Instruction
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.rewrite import assemble, parameter, with_operands

CORPUS = Path(__file__).parents[5] / "shared/corpus/models"
REDUCERS = (
    "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"
    "max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }\n"
)
VIEWS = {"parameter", "constant", "reshape", "tuple", "get-tuple-element"}
CONTROL = {"while", "conditional", "call", "after-all"}


def run_groups(fusion: Fusion, arguments: list) -> object:
    """The result of a computation, one group after the other; views in between."""
    c = fusion.computation
    values = dict(zip(c.parameters, arguments, strict=True))

    def view(i: Instruction) -> object:
        if i not in values:
            known = i.opcode in VIEWS | CONTROL or is_part(i)
            assert known, f"{i.name} is needed before it is computed"
            inputs = [view(o) for o in i.operands]
            stand_ins = tuple(parameter(n, o.shape) for n, o in enumerate(i.operands))
            one = with_operands(i, stand_ins) if stand_ins else i
            values[i] = evaluate_computation(assemble("view", stand_ins, one), inputs)
        return values[i]

    for g in fusion.groups:
        result = evaluate_computation(g.computation, [view(i) for i in g.inputs])
        parts = (result,) if len(g.outputs) == 1 else result
        values.update(zip(g.outputs, parts, strict=True))
    return view(c.root)


def check(computation: Computation) -> Fusion:
    """Fuse, and see that the groups in order compute what the computation computes."""
    fusion = fuse(computation)
    arguments = random_arguments(computation)
    expected = flat(evaluate_computation(computation, arguments))
    for x, y in zip(expected, flat(run_groups(fusion, arguments)), strict=True):
        np.testing.assert_allclose(
            x.astype(np.complex128), y.astype(np.complex128), rtol=1e-4, atol=1e-4
        )
    return fusion


def flat(value: object) -> list[np.ndarray]:
    if isinstance(value, tuple | list):
        return [x for part in value for x in flat(part)]
    return [np.asarray(value)]


def fused(body: str, before: str = REDUCERS) -> Fusion:
    return check(optimize(parse(f"HloModule t\n{before}ENTRY main {{ {body} }}")).entry)


def kinds(fusion: Fusion) -> list[str]:
    return [g.kind for g in fusion.groups]


def reason(fusion: Fusion, producer: str, consumer: str) -> str:
    (edge,) = (
        e for e in fusion.edges if (e.producer.name, e.consumer.name) == (producer, consumer)
    )
    return ("fused: " if edge.fused else "") + edge.reason


DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
ROWS = "dimensions={1}, to_apply="

SOFTMAX = (
    "x = f32[32,64] parameter(0)  low = f32[] constant(-inf)  zero = f32[] constant(0)"
    f"  m = f32[32] reduce(x, low), {ROWS}max  b = f32[32,64] broadcast(m), dimensions={{0}}"
    "  d = f32[32,64] subtract(x, b)  e = f32[32,64] exponential(d)"
    f"  s = f32[32] reduce(e, zero), {ROWS}sum  t = f32[32,64] broadcast(s), dimensions={{0}}"
    "  ROOT r = f32[32,64] divide(e, t)"
)

LAYER_NORM = (
    "x = f32[2,16,64] parameter(0)  g = f32[64] parameter(1)  h = f32[64] parameter(2)"
    "  zero = f32[] constant(0)  n = f32[] constant(64)  eps = f32[] constant(1e-5)"
    "  s = f32[2,16] reduce(x, zero), dimensions={2}, to_apply=sum"
    "  k = f32[2,16] broadcast(n), dimensions={}  mean = f32[2,16] divide(s, k)"
    "  q = f32[2,16,64] multiply(x, x)"
    "  t = f32[2,16] reduce(q, zero), dimensions={2}, to_apply=sum"
    "  u = f32[2,16] divide(t, k)  v = f32[2,16] multiply(mean, mean)"
    "  w = f32[2,16] subtract(u, v)  w1 = f32[2,16,1] reshape(w)"
    "  e = f32[2,16,1] broadcast(eps), dimensions={}  we = f32[2,16,1] add(w1, e)"
    "  i = f32[2,16,1] rsqrt(we)  i1 = f32[2,16] reshape(i)"
    "  mb = f32[2,16,64] broadcast(mean), dimensions={0,1}"
    "  ib = f32[2,16,64] broadcast(i1), dimensions={0,1}"
    "  gb = f32[2,16,64] broadcast(g), dimensions={2}"
    "  hb = f32[2,16,64] broadcast(h), dimensions={2}"
    "  c = f32[2,16,64] subtract(x, mb)  ig = f32[2,16,64] multiply(ib, gb)"
    "  y = f32[2,16,64] multiply(c, ig)  ROOT r = f32[2,16,64] add(y, hb)"
)

GELU = (
    "x = f32[2,8,16] parameter(0)  w = f32[16,32] parameter(1)  b = f32[32] parameter(2)"
    "  d = f32[2,8,32] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}"
    "  bb = f32[2,8,32] broadcast(b), dimensions={2}  y = f32[2,8,32] add(d, bb)"
    "  k = f32[] constant(0.7978845)  kb = f32[2,8,32] broadcast(k), dimensions={}"
    "  c = f32[] constant(0.044715)  cb = f32[2,8,32] broadcast(c), dimensions={}"
    "  h = f32[] constant(0.5)  hb = f32[2,8,32] broadcast(h), dimensions={}"
    "  o = f32[] constant(1)  ob = f32[2,8,32] broadcast(o), dimensions={}"
    "  y2 = f32[2,8,32] multiply(y, y)  y3 = f32[2,8,32] multiply(y2, y)"
    "  y4 = f32[2,8,32] multiply(y3, cb)  y5 = f32[2,8,32] add(y, y4)"
    "  y6 = f32[2,8,32] multiply(y5, kb)  t = f32[2,8,32] tanh(y6)"
    "  t1 = f32[2,8,32] add(t, ob)  t2 = f32[2,8,32] multiply(t1, hb)"
    "  ROOT r = f32[2,8,32] multiply(y, t2)"
)

CONVOLUTION = (
    "x = f32[1,8,8,4] parameter(0)  w = f32[3,3,4,6] parameter(1)  b = f32[6] parameter(2)"
    "  y = f32[1,8,8,6] parameter(3)  z = f32[] constant(0)"
    "  p = f32[1,10,10,4] pad(x, z), padding=0_0x1_1x1_1x0_0"
    "  c = f32[1,8,8,6] convolution(p, w), window={size=3x3}, dim_labels=b01f_01io->b01f"
    "  bb = f32[1,8,8,6] broadcast(b), dimensions={3}  a = f32[1,8,8,6] add(c, bb)"
    "  r = f32[1,8,8,6] add(a, y)  zb = f32[1,8,8,6] broadcast(z), dimensions={}"
    "  ROOT m = f32[1,8,8,6] maximum(r, zb)"
)

SUM_OF_PRODUCTS = (
    "x = f32[16,32] parameter(0)  y = f32[16,32] parameter(1)  z = f32[16,32] parameter(2)"
    "  p = f32[16,32] multiply(y, z)  q = f32[16,32] add(x, p)  zero = f32[] constant(0)"
    "  ROOT s = f32[] reduce(q, zero), dimensions={0,1}, to_apply=sum"
)

ONE_GROUP = {
    "sum(x + y * z)": (SUM_OF_PRODUCTS, "reduction"),
    "softmax": (SOFTMAX, "reduction"),
    "layer norm": (LAYER_NORM, "reduction"),
    "dot + bias + gelu": (GELU, "dot"),
    "pad + convolution + bias + residual + relu": (CONVOLUTION, "convolution"),
    "mean": (
        SUM_OF_PRODUCTS.replace("ROOT s", "s")
        + "  n = f32[] constant(512)  ROOT m = f32[] divide(s, n)",
        "reduction",
    ),
}


@pytest.mark.parametrize("name", ONE_GROUP)
def test_is_one_group(name):
    body, kind = ONE_GROUP[name]
    fusion = fused(body)
    assert kinds(fusion) == [kind]
    (group,) = fusion.groups
    assert len(group.outputs) == 1
    assert all(
        e.fused
        or e.reason == "a view of the whole buffer, no work"
        or e.reason == "only a view follows"
        for e in fusion.edges
    )


def heads(columns: int, run: int, dtype: str = "f32") -> str:
    many = columns // run
    return (
        f"x = {dtype}[8,16] parameter(0)  w = {dtype}[16,{columns}] parameter(1)"
        f"  d = {dtype}[8,{columns}] dot(x, w), {DOT}  r = {dtype}[8,{many},{run}] reshape(d)"
        f"  ROOT t = {dtype}[{many},8,{run}] transpose(r), dimensions={{1,0,2}}"
    )


@pytest.mark.parametrize(("run", "dtype"), [(16, "f32"), (48, "f32"), (8, "f64"), (16, "bf16")])
def test_heads_of_whole_vectors_split_in_the_epilogue(run, dtype):
    assert kinds(fused(heads(4 * run, run, dtype))) == ["dot"]


@pytest.mark.parametrize(("run", "dtype"), [(24, "f32"), (6, "f32"), (4, "f64"), (8, "bf16")])
def test_shorter_heads_split_apart_where_columns_are_lanes(run, dtype):
    fusion = fused(heads(4 * run, run, dtype))
    assert kinds(fusion) == ["dot", "injective"]
    assert reason(fusion, "r", "t") == "through a view: the product would be stored in short runs"
    module = parse(f"HloModule m\nENTRY e {{ {heads(4 * run, run, dtype)} }}")
    assert len(fuse(module.entry, {"scattered"}).groups) == 1


@pytest.mark.parametrize(("run", "groups"), [(24, ["dot", "injective"]), (32, ["dot"])])
def test_columns_in_parts_that_stay_neighbors_are_lanes_of_one_part(run, groups):
    module = fused(
        f"x = f32[6,16] parameter(0)  w = f32[16,{2 * run}] parameter(1)"
        f"  d = f32[6,{2 * run}] dot(x, w), {DOT}  r = f32[2,3,2,{run}] reshape(d)"
        f"  ROOT t = f32[3,2,2,{run}] transpose(r), dimensions={{1,0,2,3}}"
    )
    assert kinds(module) == groups


@pytest.mark.parametrize(("features", "groups"), [(512, 2), (32, 1)])
def test_large_results_of_few_neighbors_are_transposed_apart(features, groups):
    """The gradient of weights: a tile would write single elements of many lines."""
    module = fused(
        f"x = f32[512,4,4,4] parameter(0)  g = f32[4,4,4,{features}] parameter(1)"
        f"  c = f32[512,3,3,{features}] convolution(x, g), window={{size=4x4 pad=1_1x1_1}},"
        " dim_labels=b01f_01io->b01f"
        f"  ROOT t = f32[{features},512,3,3] transpose(c), dimensions={{3,0,1,2}}"
    )
    assert len(module.groups) == groups


PIXELS = (
    "x = f32[1,6,5,8] parameter(0)  w = f32[3,3,8,{channels}] parameter(1)"
    "  c = f32[1,6,5,{channels}] convolution(x, w), window={{size=3x3 pad=1_1x1_1}},"
    " dim_labels=b01f_01io->b01f  t = f32[1,{channels},6,5] transpose(c), dimensions={{0,3,1,2}}"
    "  r = f32[1,{out},{side},{side},6,5] reshape(t)"
    "  ROOT s = f32[1,{out},6,{side},5,{side}] transpose(r), dimensions={{0,1,4,2,5,3}}"
)


@pytest.mark.parametrize(("out", "side", "groups"), [(3, 3, 2), (1, 16, 1), (64, 1, 1)])
def test_channels_that_become_pixels(out, side, groups):
    text = PIXELS.format(out=out, side=side, channels=out * side * side)
    assert len(fused(text).groups) == groups


def test_a_product_never_recomputes_its_operands():
    fusion = fused(
        "x = f32[8,16] parameter(0)  w = f32[16,32] parameter(1)  e = f32[8,16] exponential(x)"
        f"  ROOT d = f32[8,32] dot(e, w), {DOT}"
    )
    assert kinds(fusion) == ["elementwise", "dot"]
    assert reason(fusion, "e", "d") == (
        "feeds a dot: it would be recomputed for every tile of the result"
    )


def test_a_reduction_does_not_enter_a_dot():
    fusion = fused(
        "x = f32[8,16,4] parameter(0)  w = f32[16,32] parameter(1)  z = f32[] constant(0)"
        "  s = f32[8,16] reduce(x, z), dimensions={2}, to_apply=sum"
        f"  ROOT d = f32[8,32] dot(s, w), {DOT}"
    )
    assert kinds(fusion) == ["reduction", "dot"]
    assert reason(fusion, "s", "d") == "reduction feeds a dot: its result would be recomputed"


def test_rows_in_another_direction_are_another_group():
    fusion = fused(
        "x = f32[64,64] parameter(0)  z = f32[] constant(0)"
        "  s = f32[64] reduce(x, z), dimensions={1}, to_apply=sum"
        "  b = f32[64,64] broadcast(s), dimensions={0}  y = f32[64,64] subtract(x, b)"
        "  ROOT t = f32[64] reduce(y, z), dimensions={0}, to_apply=sum"
    )
    assert kinds(fusion) == ["reduction", "reduction"]
    assert reason(fusion, "s", "b") == "reduces other dimensions: its rows are others"


def test_softmax_over_columns_does_not_pretend_to_have_rows():
    body = SOFTMAX.replace("dimensions={1}", "dimensions={0}").replace("[32]", "[64]")
    body = body.replace("broadcast(m), dimensions={0}", "broadcast(m), dimensions={1}")
    fusion = fused(body.replace("broadcast(s), dimensions={0}", "broadcast(s), dimensions={1}"))
    assert len(fusion.groups) > 1
    assert "rows are not contiguous" in reason(fusion, "m", "b")


def test_a_row_too_long_for_the_cache_is_gone_over_by_several_groups():
    body = SOFTMAX.replace("32,64", "2,99999").replace("[32]", "[2]")
    module = optimize(parse(f"HloModule t\n{REDUCERS}ENTRY main {{ {body} }}"))
    fusion = fuse(module.entry)
    assert len(fusion.groups) > 1
    assert "would leave the cache" in show_fusion(fusion)


def test_siblings_over_one_input_are_one_group():
    fusion = fused(
        "x = f32[64,32] parameter(0)  y = f32[64,32] parameter(1)  z = f32[] constant(0)"
        "  p = f32[64,32] multiply(x, y)"
        "  s = f32[32] reduce(x, z), dimensions={0}, to_apply=sum"
        "  t = f32[32] reduce(p, z), dimensions={0}, to_apply=sum"
        "  ROOT r = (f32[32], f32[32]) tuple(s, t)"
    )
    assert kinds(fusion) == ["reduction"]
    assert len(fusion.groups[0].outputs) == 2


def test_a_value_needed_elsewhere_is_one_more_result():
    fusion = fused(
        "x = f32[64] parameter(0)  e = f32[64] exponential(x)  n = f32[64] negate(e)"
        "  ROOT t = (f32[64], f32[64]) tuple(e, n)"
    )
    assert kinds(fusion) == ["elementwise"]
    assert [o.name for o in fusion.groups[0].outputs] == ["e", "n"]


def test_cheap_producers_are_computed_by_every_user():
    fusion = fused(
        "x = f32[64,8] parameter(0)  y = f32[64,16] parameter(1)  m = s32[] parameter(2)"
        "  i = s32[64] iota(), iota_dimension=0  n = s32[64] broadcast(m), dimensions={}"
        "  p = pred[64] compare(i, n), direction=LT"
        "  a = pred[64,8] broadcast(p), dimensions={0}"
        "  b = pred[64,16] broadcast(p), dimensions={0}"
        "  z = f32[] constant(0)  k = f32[64,8] broadcast(z), dimensions={}"
        "  l = f32[64,16] broadcast(z), dimensions={}"
        "  u = f32[64,8] select(a, x, k)  v = f32[64,16] select(b, y, l)"
        "  ROOT t = (f32[64,8], f32[64,16]) tuple(u, v)"
    )
    assert kinds(fusion) == ["elementwise", "elementwise"]
    assert reason(fusion, "p", "a") == "fused: cheap: every user computes its own"
    assert all(len(g.inputs) == 2 for g in fusion.groups)


def test_what_is_in_memory_is_not_made_again_of_more() -> None:
    body = """
      p = f32[64] parameter(0)  g = f32[64] parameter(1)  m = f32[64] parameter(2)
      s = f32[64] add(g, m)  n = f32[64] subtract(p, s)
      ROOT t = (f32[64], f32[64]) tuple(n, s)"""
    fusion = fused(body)
    assert kinds(fusion) == ["elementwise"]
    assert len(fusion.groups[0].outputs) == 2


def test_expensive_work_is_not_done_twice():
    fusion = fused(
        "x = f32[9999] parameter(0)  e = f32[9999] tanh(x)"
        "  a = f32[9998] slice(e), slice={[0:9998]}  b = f32[9998] slice(e), slice={[1:9999]}"
        "  ROOT s = f32[9998] subtract(a, b)"
    )
    assert len(fusion.groups) == 2
    assert reason(fusion, "a", "s").startswith("fused")
    assert "would be computed 2 times" in reason(fusion, "e", "a")


def test_parts_that_a_group_takes_once_are_not_done_twice():
    """Two halves of work, or its edges around it, are hardly more than the whole."""
    halves = fused(
        "x = f32[9998] parameter(0)  e = f32[9998] tanh(x)"
        "  a = f32[4999] slice(e), slice={[0:4999]}  b = f32[4999] slice(e), slice={[4999:9998]}"
        "  ROOT s = f32[4999] subtract(a, b)"
    )
    edges = fused(
        "x = f32[9995] parameter(0)  y = f32[2] parameter(1)"
        "  e = f32[9999] concatenate(y, x, y), dimensions={0}"
        "  a = f32[3] slice(e), slice={[1:4]}  b = f32[3] slice(e), slice={[9995:9998]}"
        "  ROOT s = f32[10005] concatenate(a, e, b), dimensions={0}"
    )
    assert len(halves.groups) == len(edges.groups) == 1


def test_opaque_work_stands_alone():
    less = (
        "less { a = f32[] parameter(0) b = f32[] parameter(1)"
        " ROOT l = pred[] compare(a, b), direction=LT }\n"
    )
    fusion = fused(
        "x = f32[64] parameter(0)  e = f32[64] exponential(x)"
        "  s = f32[64] sort(e), dimensions={0}, to_apply=less  ROOT n = f32[64] negate(s)",
        less,
    )
    assert kinds(fusion) == ["elementwise", "opaque", "elementwise"]
    assert reason(fusion, "e", "s") == "sort reads whole arrays"
    assert reason(fusion, "s", "n") == "sort is a group of its own"


DFT = "fft_type=RFFT, fft_length={8}, dimensions={2,2}"


def test_a_transform_computes_its_operand_where_it_reads_it():
    fusion = fused(
        "x = f32[1,4,8] parameter(0)  w = f32[8] parameter(1)  k = f32[8,2] parameter(2)"
        "  v = f32[1,4,8] broadcast(w), dimensions={2}  m = f32[1,4,8] power(x, v)"
        f"  s = c64[1,4,5] dft(m, k), {DFT}  ROOT r = f32[1,4,5] real(s)"
    )
    assert kinds(fusion) == ["opaque", "injective"]
    assert reason(fusion, "m", "s").startswith("fused")
    assert reason(fusion, "s", "real") == "dft is a group of its own"


def test_a_transform_reads_what_others_need_too():
    body = (
        "x = f32[1,4,8] parameter(0)  k = f32[8,2] parameter(2)  y = f32[1,4,8] parameter(1)"
        f"  m = f32[1,4,8] exponential(x)  s = c64[1,4,5] dft(m, k), {DFT}"
        "  ROOT t = (f32[1,4,8], c64[1,4,5]) tuple(m, s)"
    )
    assert kinds(fused(body)) == ["elementwise", "opaque"]


def test_a_transform_computes_little_of_its_operand():
    chain = "".join(f"  v{n + 1} = f32[1,4,8] sine(v{n})" for n in range(20))
    fusion = fused(
        f"v0 = f32[1,4,8] parameter(0)  k = f32[8,2] parameter(1){chain}"
        f"  ROOT s = c64[1,4,5] dft(v20, k), {DFT}"
    )
    assert kinds(fusion) == ["elementwise", "opaque"]
    assert any("squares would not be transposed" in e.reason for e in fusion.edges)


def test_a_transform_reads_the_buffer_of_a_bitcast():
    module = parse(
        "HloModule t\nENTRY main { x = f32[1,4,16] parameter(0)  k = f32[8,2] parameter(1)"
        "  y = f32[1,4,16] negate(x)  z = c64[1,4,8] bitcast(y)"
        f"  ROOT s = c64[1,4,8] dft(z, k), {DFT.replace('RFFT', 'FFT')} }}"
    )
    assert kinds(fuse(module.entry)) == ["elementwise", "opaque"]


def test_groups_stay_small():
    chain = "".join(f"  v{n + 1} = f32[64] sine(v{n})" for n in range(300))
    body = f"v0 = f32[64] parameter(0){chain}  ROOT r = f32[64] negate(v300)"
    fusion = fused(body)
    assert len(fusion.groups) == 3
    assert any("group has 128 instructions" in e.reason for e in fusion.edges)


def test_the_branch_around_a_product_makes_no_cycle():
    fusion = fused(
        "x = f32[8,8] parameter(0)  e = f32[8,8] exponential(x)"
        f"  d = f32[8,8] dot(e, e), {DOT}  n = f32[8,8] negate(d)"
        "  ROOT r = f32[8,8] add(e, n)"
    )
    assert kinds(fusion) == ["elementwise", "dot"]


def test_a_view_between_groups_belongs_to_none():
    fusion = fused(
        "x = f32[4,16] parameter(0)  w = f32[16,16] parameter(1)  v = f32[32,8] parameter(2)"
        f"  d = f32[4,16] dot(x, w), {DOT}  r = f32[2,32] reshape(d)"
        f"  ROOT e = f32[2,8] dot(r, v), {DOT}"
    )
    assert kinds(fusion) == ["dot", "dot"]
    assert all(i.opcode != "reshape" for g in fusion.groups for i in g.members)
    assert fusion.groups[1].inputs[0].opcode == "reshape"


def test_a_group_is_a_computation_of_its_own():
    (group,) = fused(CONVOLUTION).groups
    c = group.computation
    assert [p.name for p in c.parameters] == [i.name for i in group.inputs]
    assert [p.shape for p in c.parameters] == [i.shape for i in group.inputs]
    assert c.root.shape == group.outputs[0].shape


def test_show_fusion():
    text = show_fusion(fused("x = f32[8] parameter(0)  ROOT n = f32[8] negate(x)"))
    assert text == (
        "// main: 1 group\n\n// negate_0: elementwise, (x) -> n\nnegate_0 {\n"
        "  x = f32[8]{0} parameter(0)\n  ROOT n = f32[8]{0} negate(x)\n}\n\n"
        "// every edge is fused\n"
    )


GROUPS = {
    "bert_tiny_forward": 26,
    "vit_tiny_forward": 27,
    "mnist_mlp_train_step": 20,
    "tf_keras_convnet_forward": 4,
    "tf_train_mnist": 9,
    "op_gelu_erf_layernorm": 1,
    "torch_convnet_forward": 9,
    "reductions_forward": 9,
    "tf_image_ops": 14,
    "op_random_normal": 6,
    "wave_stencil_fori": 0,
}


@pytest.mark.corpus
@pytest.mark.parametrize("name", GROUPS)
def test_models_have_few_groups_that_compute_the_same(name):
    path = CORPUS / f"{name}.hlo"
    if not path.is_file():
        pytest.skip("the corpus is not beside this checkout")
    assert len(check(optimize(parse(path.read_text())).entry).groups) <= GROUPS[name]


@pytest.mark.corpus
@pytest.mark.parametrize(
    "name, most",
    [
        ("resnet50_keras_forward", 56),
        ("mobilenet_v2_keras_forward", 54),
        ("bert_base_forward", 136),
    ],
)
def test_large_models_have_about_one_group_per_product(name, most):
    path = CORPUS / f"{name}.hlo"
    if not path.is_file():
        pytest.skip("the corpus is not beside this checkout")
    fusion = fuse(optimize(parse(path.read_text())).entry)
    assert len(fusion.groups) <= most
    assert sum(g.kind in ("elementwise", "injective") for g in fusion.groups) <= 2


def test_values_of_other_rows_are_no_stage():
    fusion = fused(
        "x = f32[64,32] parameter(0)  z = f32[] constant(0)"
        "  s = f32[64] reduce(x, z), dimensions={1}, to_apply=sum"
        "  r = f32[64] reverse(s), dimensions={0}  ROOT t = f32[64] multiply(s, r)"
    )
    assert kinds(fusion) == ["reduction", "elementwise"]
    assert reason(fusion, "s", "t") == "reads the rows of the group in another order"
