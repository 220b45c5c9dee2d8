"""The table of instructions of tile registers, and which sums the registers hold."""

from __future__ import annotations

import itertools

import llvmlite.binding as llvm
import pytest

from nestwright.ir.dtypes import DType, bf16, f16, f32, s8, s32, u8
from nestwright.ir.target import Target
from nestwright.ir.tile_dots import (
    COLUMNS,
    GROUPS,
    ROW_BYTES,
    ROWS,
    TILE_DOTS,
    TILES,
    fits,
    tile_dot,
)

RAPIDS = Target.parse("cpu -mcpu=sapphirerapids")


@pytest.mark.parametrize(
    ("left", "right", "name"),
    [
        (bf16, bf16, "bf16ps"),
        (u8, s8, "busd"),
        (s8, u8, "bsud"),
        (s8, s8, "bssd"),
        (u8, u8, "buud"),
    ],
)
def test_an_instruction_for_the_types_of_its_operands(left: DType, right: DType, name: str) -> None:
    dot = tile_dot(RAPIDS, left, right)
    assert dot is not None and dot.intrinsic == f"llvm.x86.tdp{name}"
    assert dot.sums == (f32 if left == bf16 else s32)
    assert dot.depth * left.bytes == dot.sums.bytes
    assert dot.terms * left.bytes == ROW_BYTES
    assert COLUMNS * dot.sums.bytes == ROW_BYTES and GROUPS == ROWS


@pytest.mark.parametrize("left", [f32, f16, s32])
def test_other_types_have_none(left: DType) -> None:
    assert all(tile_dot(RAPIDS, *p) is None for p in ((left, left), (left, bf16), (s8, left)))


def test_each_feature_is_asked_for() -> None:
    def found(spec: str) -> set[str]:
        target = Target.parse(f"cpu {spec}")
        dots = (tile_dot(target, d.left, d.right) for d in TILE_DOTS)
        return {d.intrinsic.removeprefix("llvm.x86.tdp") for d in dots if d is not None}

    integers = {"bssd", "bsud", "busd", "buud"}
    assert found("-mcpu=emeraldrapids") == {"bf16ps", *integers}
    assert found("-mcpu=graniterapids -mattr=-amx-bf16") == integers
    assert found("-mcpu=sapphirerapids -mattr=-amx-int8") == {"bf16ps"}
    assert found("-mcpu=sapphirerapids -mattr=-amx-tile") == set()
    assert found("-mcpu=icelake-server") == found("-mcpu=znver5") == set()
    assert found("-mcpu=icelake-server -mattr=+amx-bf16,+amx-tile") == {"bf16ps"}


def test_llvm_knows_each_instruction() -> None:
    for dot in TILE_DOTS:
        text = f"declare void @{dot.intrinsic}(i8 immarg, i8 immarg, i8 immarg)"
        assert "Unknown intrinsic" not in str(llvm.parse_assembly(text))
    assert "Unknown intrinsic" in str(llvm.parse_assembly("declare void @llvm.x86.tdpbxyd()"))


def test_what_the_registers_hold() -> None:
    """The sums' tiles, a column of the left operand's and a row of the right one's."""
    held = {(m, n) for m, n in itertools.product(range(1, 9), repeat=2) if fits(16 * m, 16 * n)}
    assert held == {(m, n) for m in range(1, 9) for n in range(1, 9) if (m + 1) * (n + 1) <= 9}
    assert held == {(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1)}
    assert fits(1, 1) and fits(17, 32) and fits(48, 16) and fits(16, 48)
    assert not (fits(33, 17) or fits(17, 33) or fits(49, 1) or fits(1, 49))
    assert TILES == 8
