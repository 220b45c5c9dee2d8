"""The verifier's rules for collectives."""

from __future__ import annotations

import pytest

from nestwright.ir.errors import VerifyError
from nestwright.ir.hlo.analysis.verify import verify
from nestwright.ir.hlo.text import parse, show

ADD = "add { a = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT s = f32[] add(a, b) }\n"
BY_DEVICE = "channel_id=1, use_global_device_ids=true"


def module(body: str) -> str:
    return f"HloModule m\n{ADD}ENTRY e {{ x = f32[4,6] parameter(0)\nROOT y = {body} }}"


RIGHT = [
    f"f32[4,6] all-reduce(x), replica_groups={{{{0,1}}}}, {BY_DEVICE}, to_apply=add",
    "(f32[4,6], f32[4,6]) all-reduce(x, x), replica_groups={}, to_apply=add",
    f"f32[8,6] all-gather(x), replica_groups=[1,2]<=[2], {BY_DEVICE}, dimensions={{0}}",
    "f32[4,18] all-gather(x), replica_groups={}, dimensions={1}",
    "(f32[8,6], f32[8,6]) all-gather(x, x), replica_groups={{0,1}}, dimensions={0}",
    "f32[2,6] reduce-scatter(x), replica_groups={{0,1}}, dimensions={0}, to_apply=add",
    "f32[4,6] all-to-all(x), replica_groups={{0,1,2}}, dimensions={1}",
    "(f32[4,6], f32[4,6]) all-to-all(x, x), replica_groups={{0,1}}",
    "f32[4,6] collective-permute(x), source_target_pairs={{0,1},{1,2}}",
    "f32[4,6] collective-broadcast(x), replica_groups={{1,0}}",
    "(f32[4,6], f32[4,6]) collective-permute(x, x), source_target_pairs={{0,1}}",
    "u32[] replica-id()",
]


@pytest.mark.parametrize("body", RIGHT)
def test_what_is_well_formed_reads_back(body: str) -> None:
    read = parse(module(body))
    verify(read)
    assert show(parse(show(read))) == show(read)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("f32[4,5] all-reduce(x), replica_groups={}, to_apply=add", r"operands give f32\[4,6\]"),
        ("f32[4,6] all-reduce(x), replica_groups={{0},{0}}, to_apply=add", "a number twice"),
        ("f32[4,6] all-reduce(x), replica_groups={{0},{}}, to_apply=add", "an empty group"),
        ("f32[4,6] all-reduce(x), replica_groups={}", "`to_apply` is missing"),
        ("f32[9,6] all-gather(x), replica_groups={}, dimensions={0}", "does not make f32"),
        ("f32[8,6] all-gather(x), replica_groups={{0,1,2}}, dimensions={0}", "groups of 3"),
        ("f32[8,7] all-gather(x), replica_groups={{0,1}}, dimensions={0}", "is not made of"),
        ("f32[8,6] all-gather(x), replica_groups={{0,1}}, dimensions={2}", "not dimensions"),
        ("f32[8,6] all-gather(x), replica_groups={{0,1}}", "`dimensions` is missing"),
        ("f32[8,6] all-gather(x), replica_groups={{0,1},{2}}, dimensions={0}", "several sizes"),
        ("f32[3,6] reduce-scatter(x), replica_groups={}, dimensions={0}, to_apply=add", "make"),
        ("f32[4,6] all-to-all(x), replica_groups={{0,1,2}}, dimensions={0}", "no 3 equal pieces"),
        ("f32[4,6] all-to-all(x), replica_groups={{0,1}}", "`dimensions` is missing"),
        ("(f32[4,6], f32[4,5]) all-to-all(x, x), replica_groups={{0,1}}", "its operands are"),
        ("f32[4,6] collective-permute(x), source_target_pairs={{0,1},{0,2}}", "source twice"),
        ("f32[4,6] collective-permute(x), source_target_pairs={{0,1},{2,1}}", "target twice"),
        ("f32[4] collective-permute(x), source_target_pairs={{0,1}}", r"give f32\[4,6\]"),
        ("f32[] partition-id()", "gives a u32"),
    ],
)
def test_what_is_not_well_formed_is_refused(body: str, why: str) -> None:
    with pytest.raises(VerifyError, match=why):
        verify(parse(module(body)))
