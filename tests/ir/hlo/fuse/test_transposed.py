"""Operands of dots and convolutions that a group reads in place: transposed, and narrow ones."""

from __future__ import annotations

from nestwright.ir.hlo import parse
from nestwright.ir.hlo.fuse.fusion import fuse
from nestwright.ir.hlo.passes.pipeline import optimize

TWO_MATRICES = """HloModule m
ENTRY e {{ x = f32[{left}] parameter(0)
 y = f32[{right}] parameter(1)
 {body} }}"""
ROWS_BY_COLUMNS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
RIGHT = (
    "t = f32[64,48] transpose(y), dimensions={1,0}"
    f" ROOT d = f32[32,48] dot(x, t), {ROWS_BY_COLUMNS}"
)
LEFT = (
    "t = f32[32,64] transpose(x), dimensions={1,0}"
    f" ROOT d = f32[32,48] dot(t, y), {ROWS_BY_COLUMNS}"
)


def dots(
    body: str, left: str, right: str, kinds: tuple[str, ...] = ("transposed",), dtype: str = "f32"
) -> int:
    """Return the number of groups."""
    text = TWO_MATRICES.format(left=left, right=right, body=body).replace("f32[", f"{dtype}[")
    return len(fuse(parse(text).entry, kinds).groups)


def test_a_dot_reads_a_transposed_operand() -> None:
    assert dots(RIGHT, "32,64", "48,64") == dots(LEFT, "64,32", "64,48") == 1
    assert dots(RIGHT, "32,64", "48,64", ()) == 2, "only targets that say so"
    assert dots(RIGHT.replace("[32,", "[15,"), "15,64", "48,64") == 2, "few rows"
    stored = RIGHT.replace("ROOT ", "") + " ROOT r = (f32[32,48], f32[64,48]) tuple(d, t)"
    assert dots(stored, "32,64", "48,64") == 2, "a result of the module is stored"
    same = "t = f32[32,64] transpose(x), dimensions={1,0}"
    assert dots(f"{same} ROOT d = f32[32,32] dot(t, x), {ROWS_BY_COLUMNS}", "64,32", "64,48") == 2


def test_a_dot_reads_each_matrix_of_a_batch_transposed() -> None:
    batched = (
        "t = f32[3,64,48] transpose(y), dimensions={ORDER} ROOT d = f32[3,32,48] dot(x, t),"
        " lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},"
        " rhs_contracting_dims={1}"
    )
    assert dots(batched.replace("ORDER", "0,2,1"), "3,32,64", "3,48,64") == 1
    assert dots(batched.replace("ORDER", "1,2,0"), "3,32,64", "48,3,64") == 2


def test_narrow_or_far_columns_of_the_left_operand_are_transposed_before() -> None:
    assert dots(LEFT, "64,32", "64,48", dtype="bf16") == 2
    assert dots(RIGHT, "32,64", "48,64", dtype="bf16") == 1
    far = LEFT.replace("[32,64]", "[4096,512]").replace("[32,", "[4096,")
    assert dots(far, "512,4096", "512,48") == 2


BATCHED = (
    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
)


def test_tiles_are_copied_from_operands_in_any_order() -> None:
    kinds = ("strided",)
    for dtype in ("f32", "bf16", "s8"):
        assert dots(LEFT, "64,32", "64,48", kinds, dtype) == 1
        assert dots(RIGHT, "32,64", "48,64", kinds, dtype) == 1
    assert dots(RIGHT.replace("[32,", "[1,"), "1,64", "48,64", kinds) == 1, "few rows"
    moved = (
        "t = f32[3,64,48] transpose(y), dimensions={ORDER}"
        f" ROOT d = f32[3,32,48] dot(x, t), {BATCHED}"
    )
    assert dots(moved.replace("ORDER", "1,2,0"), "3,32,64", "48,3,64", kinds) == 1
    assert dots(moved.replace("ORDER", "2,0,1"), "3,32,64", "64,48,3", kinds) == 2, "batches last"
    view = (
        "t = f32[3,2,32,64] transpose(x), dimensions={ORDER} v = f32[6,32,64] reshape(t)"
        f" ROOT d = f32[6,32,48] dot(v, y), {BATCHED}"
    )
    assert dots(view.replace("ORDER", "0,2,1,3"), "3,32,2,64", "6,64,48", kinds) == 1
    assert dots(view.replace("ORDER", "0,2,3,1"), "3,64,2,32", "6,64,48", kinds) == 1
    rows = view.replace("v = f32[6,32,64]", "v = f32[3,64,64]").replace(
        "d = f32[6,32", "d = f32[3,64"
    )
    assert dots(rows.replace("ORDER", "0,2,1,3"), "3,32,2,64", "3,64,48", kinds) == 1
    assert dots(rows.replace("ORDER", "0,2,3,1"), "3,64,2,32", "3,64,48", kinds) == 2, "broken rows"


def test_what_every_group_computes_for_itself_is_transposed_before() -> None:
    clone = RIGHT.replace("transpose(y)", "transpose(n)")
    assert dots("n = f32[48,64] negate(y) " + clone, "32,64", "48,64") == 2


PLANES = """HloModule m
ENTRY e {{ x = f32[1,3,9,9] parameter(0)
 w = f32[3,3,{inputs},8] parameter(1)
 t = f32[1,9,9,3] transpose(x), dimensions={{0,2,3,1}}
 {extra}ROOT c = {result} {last} }}"""
CONV = "convolution(t, w), dim_labels=b01f_01io->b01f, window={size=3x3}"


def planes(
    last: str = CONV, extra: str = "", inputs: int = 3, kinds: tuple[str, ...] = ("planes",)
) -> int:
    """Return the number of groups."""
    result = "(f32[1,7,7,8], f32[1,9,9,3])" if last.startswith("tuple") else "f32[1,7,7,8]"
    text = PLANES.format(inputs=inputs, extra=extra, last=last, result=result)
    return len(fuse(parse(text).entry, kinds).groups)


def test_a_convolution_reads_an_image_in_planes() -> None:
    assert planes() == 1
    assert planes(kinds=()) == 2, "only targets that say so"
    both = f"c0 = f32[1,7,7,8] {CONV}\n "
    assert planes("tuple(c0, t)", both) == 2, "a result of the module is stored"
    assert planes("add(c0, c1)", both + both.replace("c0", "c1")) == 3, "transposed once for two"


def test_channels_that_are_lanes_are_transposed() -> None:
    text = PLANES.format(
        inputs=1, extra="", result="f32[1,7,7,3]", last=CONV + ", feature_group_count=3"
    )
    assert len(fuse(parse(text.replace(",1,8]", ",1,3]")).entry, ("planes",)).groups) == 2


def test_what_is_computed_is_not_read_through_a_transpose() -> None:
    text = PLANES.format(inputs=3, extra="", result="f32[1,7,7,8]", last=CONV)
    text = text.replace("transpose(x)", "transpose(y)").replace(
        " t =", " y = f32[1,3,9,9] tanh(x)\n t ="
    )
    assert len(fuse(parse(text).entry, ("planes",)).groups) == 2


def widened(rows: int, right: str, contracted: int = 0) -> int:
    """Return the number of groups of ``rows`` rows by a matrix of bf16, over a dimension of it."""
    module = parse(
        f"""HloModule m
ENTRY e {{ x = f32[{rows},256] parameter(0)
 y = bf16[{right}] parameter(1)
 wide = f32[{right}] convert(y)
 ROOT d = f32[{rows},512] dot(x, wide),
  lhs_contracting_dims={{1}}, rhs_contracting_dims={{{contracted}}} }}"""
    )
    return len(fuse(optimize(module).entry).groups)


def test_few_rows_read_narrow_weights_as_they_are_in_memory() -> None:
    assert [widened(rows, "256,512") for rows in (1, 4, 15, 16)] == [1, 1, 1, 2]
    assert widened(1, "512,256", contracted=1) == 1
    assert widened(4, "512,256", contracted=1) == 3, "in f32, after they are transposed"
