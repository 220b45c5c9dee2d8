"""Canonical dots, convolutions and windows, and the passes that make room around them."""

from __future__ import annotations

import pytest

from nestwright.ir.hlo import parse, show
from nestwright.ir.hlo.passes.canonical.convolution import (
    canonical_convolution,
    labels,
    without_pad,
)
from nestwright.ir.hlo.passes.canonical.dot import canonical_dot, expand_dots, is_canonical
from nestwright.ir.hlo.passes.canonical.window import canonical_window
from nestwright.ir.hlo.passes.expand.batch_norm import expand_batch_norm
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.passes.simplify.move_transposes import move_transposes
from nestwright.ir.hlo.passes.simplify.sink_reshapes import sink_reshapes

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"
MAX = "max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }\n"


def entry(body: str) -> str:
    return f"ENTRY main {{ {body} }}"


DOTS = {
    "two free dimensions": (
        "x = f32[2,3,4] parameter(0)  w = f32[4,5] parameter(1)"
        "  ROOT d = f32[2,3,5] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}",
        "x = f32[2,3,4] parameter(0)  a = f32[6,4] reshape(x)  w = f32[4,5] parameter(1)"
        "  d = f32[6,5] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        "  ROOT r = f32[2,3,5] reshape(d)",
    ),
    "weights the other way round": (
        "x = f32[3,4] parameter(0)  w = f32[5,4] parameter(1)"
        "  ROOT d = f32[3,5] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "x = f32[3,4] parameter(0)  w = f32[5,4] parameter(1)"
        "  t = f32[4,5] transpose(w), dimensions={1,0}"
        "  ROOT d = f32[3,5] dot(x, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "vectors": (
        "x = f32[4] parameter(0)  w = f32[4] parameter(1)"
        "  ROOT d = f32[] dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        "x = f32[4] parameter(0)  a = f32[1,4] reshape(x)  w = f32[4] parameter(1)"
        "  b = f32[4,1] reshape(w)"
        "  d = f32[1,1] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        "  ROOT r = f32[] reshape(d)",
    ),
    "a batch of one": (
        "x = f32[1,3,4] parameter(0)  w = f32[1,4,5] parameter(1)"
        "  ROOT d = f32[1,3,5] dot(x, w), lhs_batch_dims={0}, lhs_contracting_dims={2},"
        "  rhs_batch_dims={0}, rhs_contracting_dims={1}",
        "x = f32[1,3,4] parameter(0)  a = f32[3,4] reshape(x)  w = f32[1,4,5] parameter(1)"
        "  b = f32[4,5] reshape(w)"
        "  d = f32[3,5] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        "  ROOT r = f32[1,3,5] reshape(d)",
    ),
    "operands swapped where that saves a transpose": (
        "v = f32[2,4,5] parameter(0)  p = f32[2,3,4] parameter(1)"
        "  d = f32[2,5,3] dot(v, p), lhs_batch_dims={0}, lhs_contracting_dims={1},"
        "  rhs_batch_dims={0}, rhs_contracting_dims={2}"
        "  ROOT t = f32[2,3,5] transpose(d), dimensions={0,2,1}",
        "v = f32[2,4,5] parameter(0)  p = f32[2,3,4] parameter(1)"
        "  d = f32[2,3,5] dot(p, v), lhs_batch_dims={0}, lhs_contracting_dims={2},"
        "  rhs_batch_dims={0}, rhs_contracting_dims={1}"
        "  t = f32[2,5,3] transpose(d), dimensions={0,2,1}"
        "  ROOT u = f32[2,3,5] transpose(t), dimensions={0,2,1}",
    ),
    "batched inner products": (
        "x = f32[3,4] parameter(0)  y = f32[3,4] parameter(1)"
        "  ROOT d = f32[3] dot(x, y), lhs_batch_dims={0}, lhs_contracting_dims={1},"
        "  rhs_batch_dims={0}, rhs_contracting_dims={1}",
        "x = f32[3,4] parameter(0)  y = f32[3,4] parameter(1)  m = f32[3,4] multiply(x, y)"
        "  z = f32[] constant(0)"
        "  ROOT r = f32[3] reduce(m, z), dimensions={1}, to_apply=sum",
    ),
    "canonical already": (
        "x = f32[2,3,4] parameter(0)  w = f32[2,4,5] parameter(1)"
        "  ROOT d = f32[2,3,5] dot(x, w), lhs_batch_dims={0}, lhs_contracting_dims={2},"
        "  rhs_batch_dims={0}, rhs_contracting_dims={1}",
        None,
    ),
}


@pytest.mark.parametrize("name", DOTS)
def test_dot(name, becomes):
    before, after = DOTS[name]
    new = becomes(canonical_dot, SUM + entry(before), None if after is None else SUM + entry(after))
    assert all(is_canonical(i) for i in new.entry.instructions if i.opcode == "dot")


@pytest.mark.parametrize("rank", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
@pytest.mark.parametrize("batch", [0, 1])
def test_any_dot_keeps_its_meaning(rank, batch, same_meaning):
    size = (3, 4, 5)
    lhs, rhs = [0, 0, 0], [0, 0, 0]
    for at, n in zip(rank, size, strict=True):
        lhs[at] = n
    rhs[2 - rank[0]], rhs[2 - rank[1]], rhs[2 - rank[2]] = 3, 4, 7
    attrs = f"lhs_contracting_dims={{{rank[1]}}}, rhs_contracting_dims={{{2 - rank[1]}}}"
    out = [3, 5, 3, 7]
    free = [d for d in range(3) if d not in (rank[0], rank[1])]
    if batch:
        attrs = f"lhs_batch_dims={{{rank[0]}}}, rhs_batch_dims={{{2 - rank[0]}}}, " + attrs
        out = [3, lhs[free[0]], 7]
    else:
        out = [lhs[d] for d in range(3) if d != rank[1]]
        out += [rhs[d] for d in range(3) if d != 2 - rank[1]]
    body = (
        f"x = f32[{','.join(map(str, lhs))}] parameter(0)"
        f"  y = f32[{','.join(map(str, rhs))}] parameter(1)"
        f"  ROOT d = f32[{','.join(map(str, out))}] dot(x, y), {attrs}"
    )
    old = parse(f"HloModule t\n{entry(body)}")
    new = canonical_dot(old)
    assert all(is_canonical(i) for i in new.entry.instructions if i.opcode == "dot")
    same_meaning(old, new)


def test_outer_product_is_a_multiplication(becomes):
    before = (
        "x = bf16[2,3] parameter(0)  y = bf16[2,4] parameter(1)"
        "  ROOT d = f32[2,3,4] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0},"
        "  lhs_contracting_dims={}, rhs_contracting_dims={}"
    )
    after = (
        "x = bf16[2,3] parameter(0)  a = f32[2,3] convert(x)"
        "  b = f32[2,3,4] broadcast(a), dimensions={0,1}"
        "  y = bf16[2,4] parameter(1)  c = f32[2,4] convert(y)"
        "  e = f32[2,3,4] broadcast(c), dimensions={0,2}  ROOT m = f32[2,3,4] multiply(b, e)"
    )
    becomes(expand_dots, entry(before), entry(after))


TURNED, PLANES = " rhs_reversal=1x1", "bf01_oi01->bf01"

CONVOLUTIONS = [
    ("f32[2,3,8,9]", "f32[4,3,3,2]", "size=3x2 stride=2x1 pad=1_1x0_1", "bf01_oi01->bf01", ""),
    ("f32[8,9,3,2]", "f32[4,3,3,2]", "size=3x2 rhs_dilate=2x1", "01fb_oi01->01bf", ""),
    (
        "f32[2,8,9,3]",
        "f32[3,2,3,4]",
        "size=3x2 rhs_reversal=1x1 pad=1_0x0_1",
        "b01f_01io->b01f",
        "",
    ),
    ("f32[2,8,9,4]", "f32[3,2,1,8]", "size=3x2", "b01f_01io->b01f", "feature_group_count=4"),
    ("f32[6,8,9,4]", "f32[3,2,4,6]", "size=3x2", "b01f_01io->b01f", "batch_group_count=3"),
    ("f32[2,3,8]", "f32[4,3,3]", "size=3 lhs_dilate=2 pad=2_2", "bf0_oi0->bf0", ""),
    ("f32[2,4,5,6,3]", "f32[2,3,2,3,4]", "size=2x3x2", "b012f_012io->b012f", ""),
    ("f32[2,8,9,3]", "f32[3,2,3,4]", "size=3x2 pad=-1_0x0_1", "b01f_01io->b01f", ""),
    ("f32[2,8,9,3]", "f32[1,1,3,4]", "size=1x1", "b01f_01io->b01f", ""),
    ("f32[2,3,2,3]", "f32[3,2,3,4]", "size=3x2", "b01f_01io->b01f", ""),
    ("f32[2,3,5,6]", "f32[4,3,2,1]", f"size=2x1 pad=1_1x0_0 lhs_dilate=2x1{TURNED}", PLANES, ""),
    ("f32[2,5,1,3]", "f32[2,3,3,4]", "size=2x3 pad=1_1x2_2 lhs_dilate=2x3", "b01f_01io->b01f", ""),
]


@pytest.mark.parametrize("lhs, rhs, window, dim_labels, more", CONVOLUTIONS)
def test_convolution(lhs, rhs, window, dim_labels, more, same_meaning):
    tail = f"window={{{window}}}, dim_labels={dim_labels}" + (f", {more}" if more else "")
    from nestwright.ir.hlo.ops.registry import infer
    from nestwright.ir.hlo.shape_text import show_shape

    text = (
        f"HloModule t ENTRY main {{ x = {lhs} parameter(0)  w = {rhs} parameter(1)"
        f"  ROOT c = OUT convolution(x, w), {tail} }}"
    )
    probe = parse(text.replace("OUT ", "f32[1] "))
    shape = infer(
        "convolution", [o.shape for o in probe.entry.root.operands], probe.entry.root.attrs
    )
    old = parse(text.replace("OUT", show_shape(shape)))
    new = canonical_convolution(old)
    for i in new.entry.instructions:
        if i.opcode == "convolution":
            window = i.attrs["window"]
            assert i.attrs["dim_labels"] == labels(len(window))
            assert i.attrs.get("batch_group_count", 1) == 1
            assert not any(w.reversal for w in window)
    opcodes = {i.opcode for i in new.entry.instructions}
    whole = lhs == "f32[2,3,2,3]" or "size=1x1" in tail
    assert ("dot" in opcodes) == (whole or "lhs_dilate=2x" in tail)
    same_meaning(old, new)


def test_the_gradient_of_a_depthwise_kernel_moves_nothing(same_meaning):
    """Images lie as they are: the batch is what the window spans, the channels are its groups."""
    old = parse(
        "HloModule t ENTRY main { x = f32[4,7,7,9] parameter(0)  g = f32[4,7,7,9] parameter(1)"
        "  ROOT c = f32[3,3,1,9] convolution(x, g), window={size=7x7 pad=1_1x1_1},"
        " dim_labels=f01b_i01o->01bf, batch_group_count=9 }"
    )
    new = optimize(old)
    (found,) = [i for i in new.entry.instructions if i.opcode == "convolution"]
    assert found.attrs["feature_group_count"] == 9
    assert [d.size for d in found.attrs["window"]] == [4, 7, 7]
    assert not [i for i in new.entry.instructions if i.opcode == "transpose"]
    same_meaning(old, new)


def test_zero_padding_goes_into_the_window(becomes):
    pad = (
        "x = f32[1,5,9,2] parameter(0)  w = f32[3,3,2,4] parameter(1)  z = f32[] constant(0)"
        "  p = f32[1,7,10,2] pad(x, z), padding=0_0x0_2x1_0x0_0"
        "  ROOT c = f32[1,5,8,4] convolution(p, w), window={size=3x3},"
        " dim_labels=b01f_01io->b01f"
    )
    plain = (
        "x = f32[1,5,9,2] parameter(0)  w = f32[3,3,2,4] parameter(1)"
        "  ROOT c = f32[1,5,8,4] convolution(x, w),"
        " window={size=3x3 pad=0_2x1_0}, dim_labels=b01f_01io->b01f"
    )
    becomes(canonical_convolution, entry(pad), entry(plain))


def test_zero_padding_of_channels_first_goes_into_the_window(becomes):
    pad = (
        "x = f32[1,2,5,9] parameter(0)  w = f32[3,3,2,4] parameter(1)  z = f32[] constant(0)"
        "  p = f32[1,2,7,10] pad(x, z), padding=0_0x0_0x0_2x1_0"
        "  t = f32[1,7,10,2] transpose(p), dimensions={0,2,3,1}"
        "  ROOT c = f32[1,5,8,4] convolution(t, w), window={size=3x3},"
        " dim_labels=b01f_01io->b01f"
    )
    plain = (
        "x = f32[1,2,5,9] parameter(0)  w = f32[3,3,2,4] parameter(1)"
        "  t = f32[1,5,9,2] transpose(x), dimensions={0,2,3,1}"
        "  ROOT c = f32[1,5,8,4] convolution(t, w),"
        " window={size=3x3 pad=0_2x1_0}, dim_labels=b01f_01io->b01f"
    )
    becomes(canonical_convolution, entry(pad), entry(plain))


def test_zeros_between_pixels_are_those_of_a_dilated_window(becomes):
    pad = (
        "x = f32[1,5,6,2] parameter(0)  w = f32[3,3,2,4] parameter(1)  z = f32[] constant(0)"
        "  p = f32[1,7,11,2] pad(x, z), padding=0_0x0_2x0_0_1x0_0"
        "  ROOT c = f32[1,5,9,4] convolution(p, w), window={size=3x3},"
        " dim_labels=b01f_01io->b01f"
    )
    dilated = (
        "x = f32[1,5,6,2] parameter(0)  w = f32[3,3,2,4] parameter(1)"
        "  ROOT c = f32[1,5,9,4] convolution(x, w),"
        " window={size=3x3 pad=0_2x0_0 lhs_dilate=1x2}, dim_labels=b01f_01io->b01f"
    )
    made = show(canonical_convolution(parse(f"HloModule test\n{entry(dilated)}")))
    becomes(canonical_convolution, entry(pad), made.partition("\n")[2])


def test_padding_between_dilated_pixels_stays():
    text = (
        "x = f32[1,5,6,2] parameter(0)  w = f32[3,3,2,4] parameter(1)  z = f32[] constant(0)"
        "  p = f32[1,7,6,2] pad(x, z), padding=0_0x0_2x0_0x0_0"
        "  ROOT c = f32[1,11,4,4] convolution(p, w), window={size=3x3 lhs_dilate=2x1},"
        " dim_labels=b01f_01io->b01f"
    )
    assert without_pad(parse(f"HloModule test\n{entry(text)}").entry.root) is None


POOL = (
    "x = f32[6,6] parameter(0)  {} v = f32[] constant({})  i = f32[] constant(-inf)"
    "  p = f32[8,8] pad({}, v), padding=1_1x1_1"
    "  ROOT r = f32[4,4] reduce-window(p, i), window={{size=2x2 stride=2x2}}, to_apply=max"
)
ABSOLUTE = "a = f32[6,6] abs(x) "


def test_padding_goes_into_the_pool(becomes):
    direct = (
        "x = f32[6,6] parameter(0)  {} i = f32[] constant(-inf)"
        "  ROOT r = f32[4,4] reduce-window({}, i),"
        " window={{size=2x2 stride=2x2 pad=1_1x1_1}}, to_apply=max"
    )
    becomes(
        canonical_window,
        MAX + entry(POOL.format("", "-inf", "x")),
        MAX + entry(direct.format("", "x")),
    )
    becomes(
        canonical_window,
        MAX + entry(POOL.format(ABSOLUTE, "0", "a")),
        MAX + entry(direct.format(ABSOLUTE, "a")),
    )


def test_padding_that_counts_stays(becomes):
    becomes(canonical_window, MAX + entry(POOL.format("", "0", "x")), None)
    becomes(canonical_window, MAX + entry(POOL.format(ABSOLUTE, "1", "a")), None)


def test_padding_that_counts_each_time_stays(becomes):
    """One more of a sum's initial value is not the same sum."""
    ones = POOL.format("", "1", "x").replace("-inf", "1").replace("to_apply=max", "to_apply=sum")
    becomes(canonical_window, SUM + entry(ones), None)
    zeros = ones.replace("constant(1)", "constant(0)")
    module = parse("HloModule m\n" + SUM + entry(zeros))
    assert "pad(" not in show(canonical_window(module))


@pytest.mark.parametrize("wraps", ["a = s32[6,6] abs(x)", "a = s32[6,6] multiply(x, x)"])
def test_integers_that_may_wrap_are_not_taken_for_positive(wraps, becomes):
    pool = POOL.format(wraps, "0", "a").replace("-inf", "-2147483648").replace("f32", "s32")
    becomes(canonical_window, MAX.replace("f32", "s32") + entry(pool), None)


def test_transposes_sink_and_cancel(becomes):
    before = (
        "x = f32[2,3,4] parameter(0)  y = f32[2,3,4] parameter(1)  b = f32[4] parameter(2)"
        "  s = f32[4,2,3] transpose(x), dimensions={2,0,1}"
        "  t = f32[4,2,3] transpose(y), dimensions={2,0,1}"
        "  u = f32[4,2,3] add(s, t)  v = f32[4,2,3] broadcast(b), dimensions={0}"
        "  m = f32[4,2,3] maximum(u, v)  ROOT r = f32[2,3,4] transpose(m), dimensions={1,2,0}"
    )
    sunk = (
        "x = f32[2,3,4] parameter(0)  y = f32[2,3,4] parameter(1)  b = f32[4] parameter(2)"
        "  u = f32[2,3,4] add(x, y)  v = f32[2,3,4] broadcast(b), dimensions={2}"
        "  m = f32[2,3,4] maximum(u, v)  t = f32[4,2,3] transpose(m), dimensions={2,0,1}"
        "  ROOT r = f32[2,3,4] transpose(t), dimensions={1,2,0}"
    )
    becomes(move_transposes, entry(before), entry(sunk))


SINKS = {
    "reduce": (
        "r = f32[4,2] reduce(t, z), dimensions={2}, to_apply=sum",
        "q = f32[2,4] reduce(x, z), dimensions={1}, to_apply=sum"
        "  r = f32[4,2] transpose(q), dimensions={1,0}",
    ),
    "pad": (
        "r = f32[5,2,5] pad(t, z), padding=0_1x0_0x1_1",
        "q = f32[2,5,5] pad(x, z), padding=0_0x1_1x0_1"
        "  r = f32[5,2,5] transpose(q), dimensions={2,0,1}",
    ),
    "slice": (
        "r = f32[2,2,3] slice(t), slice={[1:3], [0:2], [0:3]}",
        "q = f32[2,3,2] slice(x), slice={[0:2], [0:3], [1:3]}"
        "  r = f32[2,2,3] transpose(q), dimensions={2,0,1}",
    ),
    "reverse": (
        "r = f32[4,2,3] reverse(t), dimensions={0,2}",
        "q = f32[2,3,4] reverse(x), dimensions={1,2}"
        "  r = f32[4,2,3] transpose(q), dimensions={2,0,1}",
    ),
    "concatenate": (
        "r = f32[4,4,3] concatenate(t, t), dimensions={1}",
        "q = f32[4,3,4] concatenate(x, x), dimensions={0}"
        "  r = f32[4,4,3] transpose(q), dimensions={2,0,1}",
    ),
    "gather": (
        "i = s32[5] iota(), iota_dimension=0  r = f32[4,5,3] gather(t, i), offset_dims={0,2},"
        " collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, slice_sizes={4,1,3}",
        "i = s32[5] iota(), iota_dimension=0  q = f32[5,3,4] gather(x, i), offset_dims={1,2},"
        " collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3,4}"
        "  r = f32[4,5,3] transpose(q), dimensions={2,0,1}",
    ),
    "a split": (
        "r = f32[2,2,2,1,3] reshape(t)",
        "q = f32[1,2,3,2,2] reshape(x)  r = f32[2,2,2,1,3] transpose(q), dimensions={3,4,1,0,2}",
    ),
    "repeated elements": (
        "b = f32[4,2,2,3,5] broadcast(t), dimensions={0,1,3}  r = f32[4,4,15] reshape(b)",
        "b = f32[2,2,3,5,4] broadcast(x), dimensions={0,2,4}  q = f32[4,15,4] reshape(b)"
        "  r = f32[4,4,15] transpose(q), dimensions={2,0,1}",
    ),
    "repeated rows": (
        "b = f32[2,4,2,3] broadcast(t), dimensions={1,2,3}  r = f32[8,1,2,3] reshape(b)",
        "b = f32[2,3,2,4] broadcast(x), dimensions={0,1,3}  q = f32[1,2,3,8] reshape(b)"
        "  r = f32[8,1,2,3] transpose(q), dimensions={3,0,1,2}",
    ),
}


@pytest.mark.parametrize("name", SINKS)
def test_transposes_sink_through(name, becomes):
    head = "x = f32[2,3,4] parameter(0)  z = f32[] constant(0)  "
    view = "t = f32[4,2,3] transpose(x), dimensions={2,0,1}  "
    before, after = SINKS[name]
    before, after = (f" {text}".replace(" r = ", " ROOT r = ") for text in (before, after))
    becomes(move_transposes, SUM + entry(head + view + before), SUM + entry(head + after))


def test_epilogue_takes_the_shape_of_its_dot(becomes):
    dot = (
        "x = f32[6,4] parameter(0)  w = f32[4,5] parameter(1)  b = f32[5] parameter(2)"
        "  y = f32[2,3,5] parameter(3)"
        "  d = f32[6,5] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    before = (
        "  r = f32[2,3,5] reshape(d)  c = f32[2,3,5] broadcast(b), dimensions={2}"
        "  s = f32[2,3,5] add(r, c)  ROOT t = f32[2,3,5] add(s, y)"
    )
    after = (
        "  c = f32[6,5] broadcast(b), dimensions={1}  s = f32[6,5] add(d, c)"
        "  z = f32[6,5] reshape(y)  t = f32[6,5] add(s, z)  ROOT r = f32[2,3,5] reshape(t)"
    )
    becomes(sink_reshapes, entry(dot + before), entry(dot + after))


def test_reductions_leave_merged_dimensions_alone(becomes):
    head = "x = f32[6,5] parameter(0)  v = f32[2,3,5] reshape(x)  z = f32[] constant(0)  "
    becomes(
        sink_reshapes,
        SUM + entry(head + "ROOT r = f32[2,3] reduce(v, z), dimensions={2}, to_apply=sum"),
        SUM
        + entry(
            "x = f32[6,5] parameter(0)  z = f32[] constant(0)"
            "  r = f32[6] reduce(x, z), dimensions={1}, to_apply=sum  ROOT s = f32[2,3] reshape(r)"
        ),
    )
    part = "ROOT r = f32[2,5] reduce(v, z), dimensions={1}, to_apply=sum"
    becomes(sink_reshapes, SUM + entry(head + part), None)


SOFTMAX = (
    "x = f32[2,15] parameter(0)  w = f32[2,2] parameter(1)"
    "  d = f32[2,15] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    "  v = f32[2,1,3,5] reshape(d)  low = f32[] constant(-inf)"
    "  m = f32[2,1,3] reduce(v, low), dimensions={3}, to_apply=max"
    "  t = f32[1,2,3] transpose(m), dimensions={1,0,2}"
    "  b = f32[2,1,3,5] broadcast(t), dimensions={1,0,2}"
    "  ROOT s = f32[2,1,3,5] subtract(v, b)"
)


def test_rows_of_another_shape_than_the_product_keep_it(becomes):
    becomes(sink_reshapes, MAX + entry(SOFTMAX), None)


def test_groups_of_channels_do_not_keep_their_shape() -> None:
    """Their rows are no neighbors in memory: nothing is gained by the shape that names them."""
    text = SOFTMAX.replace(
        "f32[2,1,3] reduce(v, low), dimensions={3}", "f32[1,3] reduce(v, low), dimensions={0,3}"
    )
    text = text.replace(
        "f32[1,2,3] transpose(m), dimensions={1,0,2}", "f32[3,1] transpose(m), dimensions={1,0}"
    )
    text = text.replace("broadcast(t), dimensions={1,0,2}", "broadcast(t), dimensions={2,1}")
    module = sink_reshapes(parse(f"HloModule t\n{MAX}{entry(text)}"))
    assert module.entry.root.opcode == "reshape"
    assert module.entry.root.operands[0].array.dims == (2, 15)


NORMS = {
    "inference": "ROOT n = f32[4,3,2] batch-norm-inference(x, a, b, c, d), epsilon=0.001,"
    " feature_index=1",
    "training": "ROOT n = (f32[4,3,2], f32[3], f32[3]) batch-norm-training(x, a, b),"
    " epsilon=0.001, feature_index=1",
    "grad": "ROOT n = (f32[4,3,2], f32[3], f32[3]) batch-norm-grad(x, a, b, d, g),"
    " epsilon=0.001, feature_index=1",
}


@pytest.mark.parametrize("name", NORMS)
def test_batch_norm_is_arithmetic(name, same_meaning):
    head = "x = f32[4,3,2] parameter(0)  g = f32[4,3,2] parameter(1)" + "".join(
        f"  {v} = f32[3] parameter({n})" for n, v in enumerate("abc", 2)
    )
    root = NORMS[name].replace("d)", "e)").replace(" d,", " e,")
    body = f"{head}  d = f32[3] parameter(5)  e = f32[3] abs(d)  {root}"
    old = parse(f"HloModule t\n{entry(body)}")
    new = expand_batch_norm(old)
    assert not any(i.opcode.startswith("batch-norm") for i in new.entry.instructions)
    same_meaning(old, new, 1e-4)
