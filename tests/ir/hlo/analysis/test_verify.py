"""Shapes follow from operands, and modules that break a rule are refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nestwright.ir.errors import ParseError, VerifyError
from nestwright.ir.hlo import parse
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.nodes import Computation, HloModule
from nestwright.ir.hlo.ops.registry import opcodes
from nestwright.ir.hlo.rewrite import make
from nestwright.ir.hlo.shape_text import show_shape

CORPUS = Path(__file__).parents[4].parent / "shared/corpus"

HEAD = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
lt { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = pred[] compare(a, b), direction=LT }
neg { a = f32[2] parameter(0)
  ROOT n = f32[2] negate(a) }
ENTRY e {
  x = f32[2,3] parameter(0)
  v = f32[2] parameter(1)
  i = s32[] parameter(2)
  z = f32[] constant(0)
  p = pred[2,3] parameter(3)
  img = f32[1,8,8,4] parameter(4)
  ker = f32[3,3,2,8] parameter(5)
"""


def with_root(text: str) -> HloModule:
    return parse(f"{HEAD}  ROOT r = {text}\n}}\n")


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("add(x, x)", "f32[2,3]{1,0}"),
        ("compare(x, x), direction=LT", "pred[2,3]{1,0}"),
        ("select(p, x, x)", "f32[2,3]{1,0}"),
        ("clamp(z, x, z)", "f32[2,3]{1,0}"),
        ("transpose(x), dimensions={1,0}", "f32[3,2]{1,0}"),
        ("concatenate(x, x), dimensions={1}", "f32[2,6]{1,0}"),
        ("slice(x), slice={[0:2], [0:3:2]}", "f32[2,2]{1,0}"),
        ("pad(x, z), padding=-1_0x0_1_2", "f32[1,8]{1,0}"),
        ("reduce(x, z), dimensions={1}, to_apply=add", "f32[2]{0}"),
        (
            "reduce-window(x, z), window={size=1x2 stride=1x2 pad=0_0x1_0}, to_apply=add",
            "f32[2,2]{1,0}",
        ),
        ("dot(x, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}", "f32[3]{0}"),
        (
            "convolution(img, ker), dim_labels=b01f_01io->b01f, window={size=3x3 stride=2x2 "
            "pad=1_1x0_0 rhs_dilate=1x2}, feature_group_count=2",
            "f32[1,4,2,8]{3,2,1,0}",
        ),
        ("sort(v), dimensions={0}, to_apply=lt", "f32[2]{0}"),
        ("topk(x), k=2, largest=true", "(f32[2,2]{1,0}, s32[2,2]{1,0})"),
        ("dynamic-slice(x, i, i), dynamic_slice_sizes={1,2}", "f32[1,2]{1,0}"),
        ("dynamic-update-slice(x, x, i, i)", "f32[2,3]{1,0}"),
        ("call(v), to_apply=neg", "f32[2]{0}"),
        ("get-dimension-size(x), dimensions={0}", "s32[]"),
        ("set-dimension-size(x, i), dimensions={1}", "f32[2,<=3]{1,0}"),
        ("tuple(x, v)", "(f32[2,3]{1,0}, f32[2]{0})"),
        ("fft(v), fft_type=RFFT, fft_length={2}", "c64[2]{0}"),
        ("after-all()", "token[]"),
    ],
)
def test_inferred(text: str, shape: str) -> None:
    module = with_root(text)
    assert show_shape(module.entry.root.shape) == shape
    verify(module)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(f32[2,3]) reshape(x)", "its result is one array, not (f32[2,3]{1,0})"),
        ("token[] bitcast(x)", "its result is one array, not token[]"),
        ("f32[] partition-id()", "gives a u32[], not f32[]"),
        ("f32[2,3] add(x, v)", "operands of add differ: f32[2,3]{1,0}, f32[2]{0}"),
        ("f32[2,4] add(x, x)", "its shape is f32[2,4]{1,0}, its operands give f32[2,3]{1,0}"),
        ("s32[2,3] add(x, x)", "its operands give f32[2,3]"),
        ("pred[2,3] and(x, x)", "and does not take f32"),
        ("pred[2,3] compare(x, x), direction=XX", "direction=XX"),
        ("f32[2,3] select(x, x, x)", "must be pred"),
        ("f32[2,3] transpose(x), dimensions={1}", "must order all 2 dimensions"),
        ("f32[2,3] transpose(x), dimensions={1,1}", "are not dimensions of rank 2"),
        ("f32[2] broadcast(x), dimensions={0}", "`dimensions` has 1 numbers"),
        ("f32[3,3] broadcast(v), dimensions={0}", "dimension 0"),
        ("f32[7] reshape(x)", "its result is f32[7]{0}, its operand f32[2,3]{1,0}"),
        ("f32[2] reduce(x, z), dimensions={2}, to_apply=add", "not dimensions of rank 2"),
        ("f32[2] reduce(x, z), dimensions={1}, to_apply=neg", "takes 1 scalars and gets 2"),
        ("f32[2] reduce(x, z), dimensions={1}", "attribute `to_apply` is missing"),
        ("f32[3] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "contracting"),
        ("f32[2,2] slice(x), slice={[0:2], [2:9]}", "[2:9:1] of a dimension of 3"),
        ("f32[2] call(x), to_apply=neg", "parameter `a` of `neg` is f32[2]{0} and gets f32[2,3]"),
        ("f32[2,3] while(x), condition=neg, body=neg", "gets f32[2,3]"),
        ("f32[2] conditional(i, v), branch_computations={neg, neg}", "2 branches"),
        ("f32[2] get-tuple-element(v), index=0", "index=0 of f32[2]{0}"),
        ("f32[4] iota(), iota_dimension=1", "iota_dimension=1"),
        ("f32[?] negate(v)", "unknown size"),
        ("f32[2] bitcast-convert(x)", "different numbers of bits"),
        (
            "f32[1,6,6,8] convolution(img, ker), window={size=3x3}, dim_labels=b01f_01io->b01f",
            "4 input features",
        ),
    ],
)
def test_refused(text: str, why: str) -> None:
    with pytest.raises(VerifyError) as error:
        verify(with_root(text))
    assert "`r` in `e`" in str(error.value) and why in str(error.value)


def test_layout_is_no_difference() -> None:
    verify(with_root("f32[2,3]{0,1} add(x, x)"))


def test_a_wider_sum_is_no_difference() -> None:
    verify(with_root("f64[3] dot(x, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}"))


def entry_of(*changes: object, module: HloModule, **fields: object) -> HloModule:
    entry = replace(module.entry, **fields)  # type: ignore[arg-type]
    kept = tuple(c for c in module.computations if c is not module.entry)
    return replace(module, computations=(*kept, entry), entry=entry)


def test_order_and_names() -> None:
    module = with_root("add(x, x)")
    rows = module.entry.instructions
    backwards = entry_of(module=module, instructions=rows[::-1])
    with pytest.raises(VerifyError, match="its operand `x` is not defined above it"):
        verify(backwards)
    twice = entry_of(module=module, instructions=(*rows, replace(rows[0], opcode="iota")))
    with pytest.raises(VerifyError, match="same name"):
        verify(twice)
    with pytest.raises(VerifyError, match="root `q` is not among"):
        verify(entry_of(module=module, root=make("add", rows[0].shape, name="q")))
    with pytest.raises(VerifyError, match="its parameters are not"):
        verify(entry_of(module=module, parameters=module.entry.parameters[:2]))


def test_callees_stand_above() -> None:
    module = with_root("call(v), to_apply=neg")
    turned = replace(module, computations=module.computations[::-1])
    with pytest.raises(VerifyError, match="is not above it"):
        verify(turned)
    with pytest.raises(VerifyError, match="its entry"):
        verify(replace(module, computations=module.computations[:-1]))


def test_every_operation_has_a_rule() -> None:
    unruled = opcodes(lambda op: op.computed and op.shape is None and op.check is None)
    assert unruled == {"custom-call"}
    assert not opcodes(lambda op: not op.computed and (op.shape or op.check or op.numpy))


@pytest.mark.corpus
def test_corpus_is_well_formed() -> None:
    """All models, and the cases of every operation."""
    paths = sorted((CORPUS / "models").glob("*.hlo"))
    paths += sorted((CORPUS / "stablehlo_testdata/hlo").glob("*.hlo"))[::4]
    if not paths:
        pytest.skip("the corpus is not beside this checkout")
    for path in paths:
        verify(parse(path.read_text(), path.name))


def test_called_computation_type() -> None:
    assert isinstance(with_root("call(v), to_apply=neg").entry.root.attrs["to_apply"], Computation)
    with pytest.raises(ParseError):
        with_root("call(v), to_apply=3")
