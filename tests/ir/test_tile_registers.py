"""Tile registers: features of targets, and a system that refuses the registers."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

import llvmlite.binding as llvm
import pytest
from llvmlite.binding.targets import FeatureMap

from nestwright.ir.dtypes import bf16, s8
from nestwright.ir.target import Target
from nestwright.ir.targets import cpu, processor
from nestwright.ir.tile_dots import tile_dot

RAPIDS = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
HASWELL = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"
BF16, BYTES = "llvm.x86.tdpbf16ps", "llvm.x86.tdpbssd"
x86 = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux", reason="AMX is of x86-64, on Linux"
)


def instructions(spec: str) -> set[str]:
    """The instructions on tiles of bf16 and of bytes that a target has."""
    target = Target.parse(spec)
    found = (tile_dot(target, bf16, bf16), tile_dot(target, s8, s8))
    return {dot.intrinsic for dot in found if dot is not None}


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (RAPIDS, {BF16, BYTES}),
        (f"{RAPIDS} -mattr=-amx-tile", set()),
        (f"{RAPIDS} -mattr=-amx-bf16", {BYTES}),
        (f"{RAPIDS} -mattr=-amx-int8", {BF16}),
        (f"{RAPIDS} -mattr=-avx512f", {BF16, BYTES}),
        (HASWELL, set()),
        (f"{HASWELL} -mattr=+amx-tile", set()),
        (f"{HASWELL} -mattr=+amx-bf16", {BF16}),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v2", set()),
    ],
)
def test_instructions_follow_from_features(spec: str, names: set[str]) -> None:
    assert instructions(spec) == names


def test_a_feature_brings_those_that_it_builds_on() -> None:
    wide = Target.parse(f"{HASWELL} -mattr=+avx512vnni")
    assert {"avx2", "avx512f", "avx512vnni"} <= wide.features and wide.vector_bits == 512
    old = Target.parse("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v2 -mattr=+fma")
    assert "avx" in old.features and "avx2" not in old.features


def test_targets_with_other_tiles_have_other_names_in_logs() -> None:
    without = ("", "-amx-tile", "-amx-bf16", "-amx-int8")
    specs = [f"{RAPIDS} -mattr={item}" if item else RAPIDS for item in without]
    assert len({Target.parse(s).key for s in specs}) == len(specs)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A processor with tile registers, and a system that refuses them."""
    found = FeatureMap({"avx2": True, "amx-tile": True, "amx-int8": True, "amx-bf16": True})
    flags = frozenset({"avx2", "amx_tile", "amx_int8", "amx_bf16"})
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: found)
    monkeypatch.setattr(processor, "features_here", lambda: flags)
    for module in (cpu, processor):
        monkeypatch.setattr(module, "tiles_granted", lambda: False)
    cpu._host.cache_clear()
    yield
    cpu._host.cache_clear()


def test_the_host_has_none_where_they_are_refused(refused: None) -> None:
    _, _, attributes, features = cpu._host()
    assert features == {"avx2"}
    assert set(attributes.split(",")) == {"+avx2", "-amx-tile", "-amx-int8", "-amx-bf16"}


def test_code_for_them_is_told_why_it_does_not_run(refused: None) -> None:
    needed = ("avx2", "amx-tile", "amx-bf16")
    assert processor.lacking(needed, "x86_64") == (processor.REFUSED,)
    assert processor.lacking((*needed, "avx512f"), "x86_64") == ("avx512f", processor.REFUSED)
    assert processor.lacking(("avx2",), "x86_64") == ()


def test_a_processor_without_them_is_not_refused_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "features_here", lambda: frozenset({"avx2"}))
    assert not processor.tiles_refused()
    assert processor.lacking(("avx2", "amx-tile"), "x86_64") == ("amx-tile",)


@x86
def test_this_machine_answers_for_what_it_has() -> None:
    has = "amx_tile" in processor.features_here()
    assert processor.tiles_refused() == (has and not processor.tiles_granted())
    assert ("amx-tile" in cpu._host()[3]) == (has and processor.tiles_granted())
