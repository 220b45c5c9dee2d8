"""What classical groups become: which blocks, over which axes, reading what."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest

from nestwright.ir.errors import UnsupportedError
from nestwright.ir.hlo.text import parse
from nestwright.ir.loop.nodes import AxisKind, Block, Func
from nestwright.ir.loop.notes import COPY, UPDATES
from nestwright.ir.loop.printer import show
from nestwright.ir.loop.verify import verify
from nestwright.ir.loop.visit import walk
from nestwright.te.from_hlo import lower_group

REDUCERS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
"""


def lower(body: str) -> Func:
    """The function of a group, given the instructions of its computation."""
    func = lower_group(
        parse(f"HloModule m\n{REDUCERS}\nENTRY main {{{dedent(body)}}}").entry, "main"
    )
    verify(func)
    return func


def blocks(func: Func) -> dict[str, Block]:
    return {b.name: b for b in walk(func.body) if isinstance(b, Block)}


def axes(block: Block) -> list[tuple[str, int]]:
    """Loop names and extents of a block in order, reduce axes starred."""
    star = {AxisKind.SPATIAL: "", AxisKind.REDUCE: "*"}
    return [(star[a.kind] + a.var.name, a.extent) for a in block.axes]


def stores(func: Func) -> list[str]:
    """The assignments of a function, with the numbers that make names unique left out."""
    found = []
    for line in show(func).splitlines():
        if re.match(r" +\w+(\[.*?\])? = (?!spatial|reduce|alloc|let)", line):
            found.append(re.sub(r"\b([a-z]+\d*)_\d+\b", r"\1", line.strip()))
    return found


def test_softmax_is_four_passes_over_the_same_rows() -> None:
    func = lower("""
        x = f32[4,8] parameter(0)
        low = f32[] constant(-inf)
        zero = f32[] constant(0)
        m = f32[4] reduce(x, low), dimensions={1}, to_apply=max
        mb = f32[4,8] broadcast(m), dimensions={0}
        s = f32[4,8] subtract(x, mb)
        e = f32[4,8] exponential(s)
        t = f32[4] reduce(e, zero), dimensions={1}, to_apply=add
        tb = f32[4,8] broadcast(t), dimensions={0}
        ROOT r = f32[4,8] divide(e, tb)
    """)
    assert [(b.name, axes(b)) for b in blocks(func).values()] == [
        ("max", [("vi0", 4), ("*vk0", 8)]),
        ("exp", [("vi0", 4), ("vi1", 8)]),
        ("sum", [("vi0", 4), ("*vk0", 8)]),
        ("out", [("vi0", 4), ("vi1", 8)]),
    ]
    assert stores(func) == [
        "max[vi0] = f32(-inf)",
        "max[vi0] = max(max[vi0], p0[vi0, vk0])",
        "exp[vi0, vi1] = exp(p0[vi0, vi1] - max[vi0])",
        "sum[vi0] = f32(0.0)",
        "sum[vi0] = sum[vi0] + exp[vi0, vk0]",
        "out[vi0, vi1] = exp[vi0, vi1] / sum[vi0]",
    ]


def test_layer_norm_keeps_cheap_work_inline_and_the_root_per_row() -> None:
    func = lower("""
        x = f32[4,8] parameter(0)
        g = f32[8] parameter(1)
        zero = f32[] constant(0)
        n = f32[] constant(8)
        nb = f32[4] broadcast(n), dimensions={}
        eps = f32[] constant(0.5)
        eb = f32[4] broadcast(eps), dimensions={}
        s = f32[4] reduce(x, zero), dimensions={1}, to_apply=add
        mean = f32[4] divide(s, nb)
        mb = f32[4,8] broadcast(mean), dimensions={0}
        c = f32[4,8] subtract(x, mb)
        sq = f32[4,8] multiply(c, c)
        v = f32[4] reduce(sq, zero), dimensions={1}, to_apply=add
        var = f32[4] divide(v, nb)
        ve = f32[4] add(var, eb)
        inv = f32[4] rsqrt(ve)
        ib = f32[4,8] broadcast(inv), dimensions={0}
        y = f32[4,8] multiply(c, ib)
        gb = f32[4,8] broadcast(g), dimensions={1}
        ROOT r = f32[4,8] multiply(y, gb)
    """)
    assert stores(func) == [
        "sum[vi0] = f32(0.0)",
        "sum[vi0] = sum[vi0] + p0[vi0, vk0]",
        "divide[vi0] = sum[vi0] / f32(8.0)",
        "sum[vi0] = f32(0.0)",
        "sum[vi0] = sum[vi0] + t0 * t0",
        "rsqrt[vi0] = rsqrt(sum[vi0] / f32(8.0) + f32(0.5))",
        "out[vi0, vi1] = (p0[vi0, vi1] - divide[vi0]) * rsqrt[vi0] * p1[vi1]",
    ]


def test_dot_with_epilogue_is_two_blocks() -> None:
    func = lower("""
        x = f32[4,8] parameter(0)
        w = f32[8,6] parameter(1)
        b = f32[6] parameter(2)
        d = f32[4,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        bb = f32[4,6] broadcast(b), dimensions={1}
        y = f32[4,6] add(d, bb)
        z = f32[] constant(0)
        zb = f32[4,6] broadcast(z), dimensions={}
        ROOT r = f32[4,6] maximum(y, zb)
    """)
    assert [(b.name, axes(b)) for b in blocks(func).values()] == [
        ("dot", [("vi0", 4), ("vi1", 6), ("*vk0", 8)]),
        ("out", [("vi0", 4), ("vi1", 6)]),
    ]
    assert stores(func) == [
        "dot[vi0, vi1] = f32(0.0)",
        "dot[vi0, vi1] = dot[vi0, vi1] + p0[vi0, vk0] * p1[vk0, vi1]",
        "out[vi0, vi1] = max(dot[vi0, vi1] + p2[vi1], f32(0.0))",
    ]


def test_bf16_dot_sums_in_f32_and_rounds_once() -> None:
    func = lower("""
        x = bf16[4,8] parameter(0)
        w = bf16[8,6] parameter(1)
        ROOT d = bf16[4,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    """)
    assert [str(b.dtype) for b in func.allocs] == ["f32"]
    assert stores(func)[1:] == [
        "dot[vi0, vi1] = dot[vi0, vi1] + cast(f32, p0[vi0, vk0]) * cast(f32, p1[vk0, vi1])",
        "out[vi0, vi1] = cast(bf16, dot[vi0, vi1])",
    ]


def test_convolution_pads_apart_and_scales_per_channel_first() -> None:
    func = lower("""
        x = f32[1,6,6,4] parameter(0)
        w = f32[3,3,4,8] parameter(1)
        v = f32[8] parameter(2)
        c = f32[1,3,3,8] convolution(x, w), window={size=3x3 stride=2x2 pad=1_1x1_1},
          dim_labels=b01f_01io->b01f
        s = f32[8] rsqrt(v)
        sb = f32[1,3,3,8] broadcast(s), dimensions={3}
        y = f32[1,3,3,8] multiply(c, sb)
        z = f32[] constant(0)
        zb = f32[1,3,3,8] broadcast(z), dimensions={}
        ROOT r = f32[1,3,3,8] maximum(y, zb)
    """)
    assert [b for b in blocks(func)] == ["rsqrt", "pad", "conv", "out"]
    assert blocks(func)["pad"].writes[0].buffer.shape == (1, 7, 7, 4)  # as far as windows reach
    assert stores(func)[-2:] == [
        "conv[vi0, vi1, vi2, vi3] = conv[vi0, vi1, vi2, vi3] + "
        "pad[vi0, vi1 * 2 + vk0, vi2 * 2 + vk1, vk2] * p1[vk0, vk1, vk2, vi3]",
        "out[vi0, vi1, vi2, vi3] = max(conv[vi0, vi1, vi2, vi3] * rsqrt[vi3], f32(0.0))",
    ]


def test_depthwise_convolution_has_one_channel_axis_and_no_division() -> None:
    func = lower("""
        x = f32[1,6,6,4] parameter(0)
        w = f32[3,3,1,4] parameter(1)
        ROOT c = f32[1,4,4,4] convolution(x, w), window={size=3x3},
          dim_labels=b01f_01io->b01f, feature_group_count=4
    """)
    (block,) = blocks(func).values()
    assert axes(block) == [
        *(("vi0", 1), ("vi1", 4), ("vi2", 4), ("vi3", 4)),
        *(("*vk0", 3), ("*vk1", 3)),
    ]
    assert "//" not in show(func) and "%" not in show(func)


def test_operand_of_a_dot_is_computed_once_not_per_term() -> None:
    func = lower("""
        x = f32[4,8] parameter(0)
        w = f32[8,6] parameter(1)
        n = f32[4,8] negate(x)
        t = f32[8,4] transpose(n), dimensions={1,0}
        ROOT d = f32[4,6] dot(t, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
    """)
    assert list(blocks(func)) == ["negate", "dot"]
    assert stores(func)[-1] == "out[vi0, vi1] = out[vi0, vi1] + negate[vi0, vk0] * p1[vk0, vi1]"


def test_shared_work_is_bound_once_however_often_it_doubles() -> None:
    rows = "\n".join(f"y{n + 1} = f32[4] multiply(y{n}, y{n})" for n in range(40))
    func = lower(f"""
y0 = f32[4] parameter(0)
{rows}
ROOT r = f32[4] add(y40, y40)
""")
    assert list(blocks(func)) == ["out"]
    assert len(show(func).splitlines()) < 60


def test_different_ways_of_reading_do_not_multiply() -> None:
    """A pyramid of slices: each level reads the one below at two places."""
    rows, size = [], 512
    for n in range(8):
        half = size // 2
        rows += [
            f"a{n} = f32[{half}] slice(x{n}), slice={{[0:{size}:2]}}",
            f"b{n} = f32[{half}] slice(x{n}), slice={{[1:{size}:2]}}",
            f"x{n + 1} = f32[{half}] add(a{n}, b{n})",
        ]
        size = half
    text = "\n".join(["x0 = f32[512] parameter(0)", *rows, "ROOT r = f32[2] negate(x8)"])
    assert max(len(line) for line in show(lower(text)).splitlines()) < 800


def test_elements_gathered_one_by_one_are_kept_before_they_are_transposed() -> None:
    func = lower("""
        x = f32[6,5] parameter(0)
        i = s32[7] parameter(1)
        g = f32[6,7] gather(x, i), offset_dims={0}, collapsed_slice_dims={1},
            start_index_map={1}, index_vector_dim=1, slice_sizes={6,1}
        n = f32[6,7] negate(g)
        ROOT t = f32[7,6] transpose(n), dimensions={1,0}
    """)
    assert [[n for _, n in axes(b)] for b in blocks(func).values()] == [[6, 7], [7, 6]]


def test_concatenated_output_is_written_in_parts() -> None:
    func = lower("""
        x = f32[3] parameter(0)
        y = f32[2] parameter(1)
        ROOT c = f32[5] concatenate(x, y), dimensions={0}
    """)
    assert stores(func) == ["out[vi0] = p0[vi0]", "out[vi0 + 3] = p1[vi0]"]


def test_update_in_place_is_noted() -> None:
    func = lower("""
        x = f32[5] parameter(0)
        u = f32[2] parameter(1)
        i = s32[] parameter(2)
        ROOT r = f32[5] dynamic-update-slice(x, u, i)
    """)
    assert UPDATES.of(func) == ((0, 0),)
    assert [COPY.of(b) for b in blocks(func).values()] == [1, None]


def test_update_that_reads_its_operand_again_is_not_in_place() -> None:
    func = lower("""
        x = f32[5] parameter(0)
        u = f32[2] slice(x), slice={[3:5]}
        i = s32[] parameter(1)
        ROOT r = f32[5] dynamic-update-slice(x, u, i)
    """)
    assert func.notes == {}


def test_outputs_follow_the_tuple_whatever_stands_in_it() -> None:
    func = lower("""
        x = f32[5] parameter(0)
        n = f32[5] negate(x)
        ROOT r = (f32[5], f32[5], f32[5]) tuple(n, x, n)
    """)
    assert func.outputs == 3
    assert stores(func) == ["out0[vi0] = -p0[vi0]", "out1[vi0] = p0[vi0]", "out2[vi0] = out0[vi0]"]


def test_merged_dimensions_are_taken_apart_only_where_they_must() -> None:
    func = lower("""
        x = f32[8,12,64] parameter(0)
        a = f32[8,768] reshape(x)
        n = f32[8,768] negate(a)
        ROOT r = f32[8,12,64] reshape(n)
    """)
    assert stores(func) == ["out[vi0, vi1, vi2] = -p0[vi0, vi1, vi2]"]


def refusal(body: str) -> str:
    with pytest.raises(UnsupportedError) as caught:
        lower(body)
    return str(caught.value)


def test_refusal_names_every_instruction_and_its_source() -> None:
    text = refusal("""
        x = f32[4] parameter(0)
        k = f32[4] fft(x), fft_type=IRFFT, fft_length={4},
          metadata={source_file="n.py" source_line=7}
        ROOT s = f32[4] custom-call(k), custom_call_target="magic"
    """)
    assert text.startswith("computation main: 2 instructions cannot be compiled:")
    assert "1 x fft: there is no loop nest for this operation\n    `k` in `main` (n.py:7)" in text
    assert "1 x custom-call: there is no loop nest for this operation\n    `s` in `main`" in text


def test_refusal_of_dynamic_dimensions() -> None:
    assert "bounded dynamic dimension" in refusal("""
        x = f32[<=4] parameter(0)
        ROOT r = f32[<=4] negate(x)
    """)


def test_refusal_of_a_big_constant() -> None:
    values = ", ".join(map(str, range(9)))
    assert "pass it as an input" in refusal(f"""
        x = f32[9] parameter(0)
        c = f32[9] constant({{{values}}})
        ROOT r = f32[9] add(x, c)
    """)


def test_refusal_of_batch_groups() -> None:
    assert "batch groups" in refusal("""
        x = f32[4,5,3] parameter(0)
        w = f32[5,3,4] parameter(1)
        ROOT c = f32[2,1,4] convolution(x, w), window={size=5}, dim_labels=b0f_0io->b0f,
          batch_group_count=2
    """)


def test_long_chains_are_cut_so_that_no_walker_recurses_too_deep() -> None:
    adds = "\n".join(f"y{n + 1} = f32[4] add(y{n}, x)" for n in range(300))
    moves = "\n".join(f"u{n + 1} = f32[4] dynamic-update-slice(u{n}, p, i)" for n in range(150))
    func = lower(f"""
x = f32[4] parameter(0)
y0 = f32[4] parameter(1)
p = f32[1] parameter(2)
i = s32[] parameter(3)
{adds}
u0 = f32[4] negate(y300)
{moves}
ROOT r = f32[4] negate(u150)
""")
    assert 5 < len(blocks(func)) < 20
