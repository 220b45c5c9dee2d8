"""Rows of processor families: one per processor, sensible figures, caches that alias by set."""

from __future__ import annotations

import pytest

from nestwright.ir.cores import FAMILIES, UNKNOWN, Cache, CpuCore, core_of
from nestwright.ir.target import Target
from nestwright.ir.targets.cpu import processors


def test_every_processor_that_a_target_may_name_has_one_row() -> None:
    named = [name for core in FAMILIES for name in core.processors]
    assert len(named) == len(set(named))
    assert set(named) == {name for names in processors().values() for name in names}


@pytest.mark.parametrize("core", FAMILIES, ids=lambda c: c.family)
def test_rows_do_not_contradict_themselves(core: CpuCore) -> None:
    assert core.l1.size < core.l2.size <= core.l3.size
    assert core.l1.rate > core.l2.rate >= core.l3.rate > core.read / core.clock
    assert core.read <= core.read_all and core.copy <= core.copy_all
    for level in (core.l1, core.l2, core.l3):
        assert level.period * level.ways <= level.size
    # A cache cannot supply more than the load ports take.
    assert core.l1.rate <= core.loads * core.vector_bits / 8
    assert core.fmas <= core.issue


def test_a_target_has_the_row_of_its_processor() -> None:
    zen = Target.parse("cpu -mcpu=znver4")
    assert zen.core.family == "Zen 4" and (zen.l1, zen.l2) == (32 << 10, 1 << 20)
    here = Target.parse("cpu")
    assert (here.core.l1.size, here.core.l2.size) == (here.l1, here.l2)
    assert Target.parse("cuda -arch=sm_80").core is UNKNOWN


@pytest.mark.parametrize(
    ("name", "bits", "x86", "family"),
    [
        ("znver9", 512, True, "Ice Lake server"),
        ("futurelake", 256, True, "Haswell"),
        ("i686", 128, True, "x86-64"),
        ("oryon-9", 128, False, "Neoverse N1"),
    ],
)
def test_a_processor_newer_than_the_table_gets_a_plain_row(
    name: str, bits: int, x86: bool, family: str
) -> None:
    assert core_of(name, bits, x86).family == family


def test_wide_instructions_take_several_turns_in_narrow_units() -> None:
    zen4, golden = core_of("znver4", 512), core_of("emeraldrapids", 512)
    assert (zen4.turns(512), zen4.turns(256), golden.turns(512)) == (2, 1, 1)
    assert golden.chains(512) == 2 * zen4.chains(512)
    assert golden.flops(512) == 64 * golden.clock
    assert zen4.flops(512) == zen4.flops(256) == 32 * zen4.clock


def test_rows_four_kibibytes_apart_share_a_set() -> None:
    zen4 = core_of("znver4", 512).l1  # 64 sets of 8 ways
    assert zen4.period == 4096
    assert zen4.held(14, 4096) == 8 / 14
    assert zen4.held(8, 4096) == 1
    assert zen4.held(14, 4160) == 1  # a line further each
    assert zen4.held(14, 2048) == 1  # two sets
    assert zen4.held(28, 2048) == 16 / 28
    assert zen4.held(14, 4096 + 24) == 1  # five sets, gradually
    assert zen4.held(14, 0) == zen4.held(14, 4) == 1
    assert zen4.held(0, 4096) == 0


def test_bandwidth_grows_with_threads_up_to_that_of_all() -> None:
    core = core_of("znver4", 512)
    assert core.bandwidth(1) == core.read < core.bandwidth(2) <= core.bandwidth(64)
    assert core.bandwidth(64) == core.read_all
    assert core.bandwidth(1, copying=True) == core.copy


def test_what_fits_a_cache_is_read_at_its_rate() -> None:
    core = core_of("znver4", 512)
    sizes = (32 << 10, 64 << 10, 1 << 20, 2 << 20, 16 << 20, 64 << 20)
    rates = [core.stream(size, 2) for size in sizes]
    assert rates[0] == rates[1] > rates[2] == rates[3] > rates[4] > rates[5] == core.bandwidth(2)


def test_a_cache_of_few_lines_has_a_set_at_least() -> None:
    assert (Cache(1 << 10, 4, 1.0).sets, Cache(64, 4, 1.0).sets) == (4, 1)
