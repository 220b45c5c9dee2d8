"""Replica groups: every form of XLA's text, and the devices that they mean in every mode."""

from __future__ import annotations

import numpy as np
import pytest

from nestwright.ir.dtypes import f32
from nestwright.ir.hlo.device_groups import (
    Devices,
    Ids,
    linked,
    misfit,
    on_devices,
    parse_groups,
    parse_pairs,
    show_groups,
)
from nestwright.ir.hlo.nodes import Raw, Shape
from nestwright.ir.hlo.ops.collectives import devices, ids
from nestwright.ir.hlo.rewrite import parameter, with_attrs
from nestwright.ir.hlo.shardings import Sharding, tiles
from nestwright.ir.hlo.text import parse


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("", ()),
        ("{}", ()),
        ("{{0}}", ((0,),)),
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("{ {0, 2} , {3,1} }", ((0, 2), (3, 1))),
        ("[1,4]<=[4]", ((0, 1, 2, 3),)),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("[4,2]<=[2,2,2]T(2,0,1)", ((0, 2), (4, 6), (1, 3), (5, 7))),
        ("mesh['a'=4,'b'=2] {'a'}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['a'=2,'b'=2] {'b'}", ((0, 1), (2, 3))),
        ("mesh['a'=2,'b'=2] {'b','a'}", ((0, 2, 1, 3),)),
        ("mesh['a'=4] {'a':(1)2}", ((0, 2), (1, 3))),
        ("mesh['a'=4] {'a':(2)2}", ((0, 1), (2, 3))),
    ],
)
def test_forms(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert parse_groups(text) == groups
    assert parse_groups(show_groups(groups)) == groups


@pytest.mark.parametrize(
    "text",
    [
        *("{{0,1}", "[2,2]<=[5]", "[4]<=[4]", "[2,2]<=[2,2]T(1,1)", "[0,9999999]<=[0]", "x"),
        *("{0,1}", "[99999,99999]<=[99999,99999]", "mesh['a'=2] {'b'}", "mesh['a'=0] {'a'}"),
    ],
)
def test_other_texts_are_not_read(text: str) -> None:
    assert parse_groups(text) is None


def test_pairs() -> None:
    assert parse_pairs("{{0,1},{1,0}}") == ((0, 1), (1, 0))
    assert parse_pairs("{}") == () == parse_pairs("")
    assert parse_pairs("{{0,1,2}}") is None and parse_pairs("[1,2]<=[2]") is None
    assert linked(((0, 1), (3, 3), (2, 1), (4, 5))) == ((0, 1, 2), (3,), (4, 5))


def test_numbers_mean_replicas_partitions_or_devices() -> None:
    six = Devices(replicas=3, partitions=2)  # device = 2 * replica + partition
    assert on_devices(((0, 2), (1,)), Ids.REPLICAS, six) == ((0, 4), (2,), (1, 5), (3,))
    assert on_devices((), Ids.REPLICAS, six) == ((0, 2, 4), (1, 3, 5))
    assert on_devices(((1, 0),), Ids.PARTITIONS, six) == ((1, 0), (3, 2), (5, 4))
    assert on_devices(((0, 2), (1,)), Ids.REPLICAS_WHOLE, six) == ((0, 1, 4, 5), (2, 3))
    assert on_devices(((5, 0),), Ids.DEVICES, six) == ((5, 0),)
    assert on_devices((), Ids.DEVICES, six) == ((0, 1, 2, 3, 4, 5),)


@pytest.mark.parametrize(
    ("opcode", "attributes", "meaning"),
    [
        ("all-reduce", "to_apply=add", Ids.REPLICAS),
        ("all-reduce", "to_apply=add, channel_id=1", Ids.REPLICAS_WHOLE),
        ("all-reduce", "to_apply=add, channel_id=1, use_global_device_ids=true", Ids.DEVICES),
        ("all-to-all", "dimensions={0}, channel_id=1", Ids.PARTITIONS),
        ("collective-broadcast", "channel_id=0", Ids.REPLICAS),
    ],
)
def test_attributes_say_what_numbers_mean(opcode: str, attributes: str, meaning: Ids) -> None:
    body = f"ROOT y = f32[4] {opcode}(x), replica_groups={{{{0,1}}}}, {attributes}"
    assert ids(parse(_module(body)).entry.root) is meaning


def _module(body: str, header: str = "") -> str:
    add = "add { a = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT s = f32[] add(a, b) }\n"
    return f"HloModule m{header}\n{add}ENTRY e {{ x = f32[4] parameter(0)\n{body} }}"


REDUCE = "ROOT y = f32[4] all-reduce(x), to_apply=add, replica_groups="


@pytest.mark.parametrize(
    ("header", "body", "known"),
    [
        ("", "ROOT y = f32[4] negate(x)", Devices()),
        ("", REDUCE + "{}", Devices()),
        ("", REDUCE + "{{0,1},{2,3}}", Devices(replicas=4)),
        ("", REDUCE + "[1,2]<=[2], channel_id=1, use_global_device_ids=true", Devices(1, 2)),
        (", replica_count=2", REDUCE + "{{0,1,2}}", Devices(2)),
        (", replica_count=2, num_partitions=3", REDUCE + "{}", Devices(2, 3)),
        (
            "",
            "ROOT y = f32[4] collective-permute(x), channel_id=1, source_target_pairs={{0,2}}",
            Devices(1, 3),
        ),
    ],
)
def test_devices_of_a_module(header: str, body: str, known: Devices) -> None:
    """Those of the header, or the fewest that have the numbers in the text."""
    assert devices(parse(_module(body, header))) == known


def test_misfits_are_named() -> None:
    assert misfit((), 4) == "" == misfit(((1, 0), (2,)), 3)
    assert misfit(((0, 1), (1,)), 2) == "1 is in two groups"
    assert misfit(((0, 4),), 2) == "they name 4, and there are 2"
    assert misfit(((0, 2),), 3) == "1 is in no group"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{replicated}", None),
        ("{maximal device=0}", None),
        ("{devices=[2,1]<=[2]}", Sharding((2, 1), (0, 1))),
        ("{devices=[2,1]1,0}", Sharding((2, 1), (1, 0))),
        ("{devices=[1,2,2]<=[4] last_tile_dim_replicate}", Sharding((1, 2), (0, 0, 1, 1))),
        ("{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}", Sharding((2, 1), (0, 1, 0, 1))),
        ("{devices=[2,2]<=[5]}", None),
        ("{devices=[2,1]3,0}", None),
    ],
)
def test_shardings(text: str, expected: Sharding | None) -> None:
    found = tiles(with_attrs(parameter(0, Shape(f32, (4, 6))), sharding=Raw(text)))
    assert found == expected


def test_a_device_has_its_part_of_an_array() -> None:
    whole = np.arange(48).reshape(8, 6)
    cut = Sharding((2, 3), (5, 0, 1, 2, 3, 4))
    assert cut.whole((4, 2)) == (8, 6)
    np.testing.assert_array_equal(cut.part(whole, (4, 2), 0), whole[4:, 4:])
    np.testing.assert_array_equal(cut.part(whole, (4, 2), 2), whole[:4, 2:4])
