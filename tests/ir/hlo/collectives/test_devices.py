"""The interpreter of all devices at once: what each gets, and programs that would hang."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nestwright.ir.errors import ArgumentError, UnsupportedError
from nestwright.ir.hlo.interp.devices import evaluate_devices
from nestwright.ir.hlo.interp.evaluate import evaluate
from nestwright.ir.hlo.passes.pipeline import optimize
from nestwright.ir.hlo.text import parse

CALLED = """add { a = f32[] parameter(0)
b = f32[] parameter(1)
ROOT s = f32[] add(a, b) }
sum { p = f32[4] parameter(0)
ROOT s = f32[4] all-reduce(p), replica_groups={}, to_apply=add }
same { ROOT p = f32[4] parameter(0) }
"""
X = [np.arange(4, dtype="f4") + 10 * n for n in range(4)]


def module(body: str, header: str = ", replica_count=4", called: str = CALLED) -> str:
    return f"HloModule m{header}\n{called}ENTRY e {{ x = f32[4] parameter(0)\n{body} }}"


def run(text: str, count: int = 4) -> list[Any]:
    """The results of all devices, which the graph passes do not change."""
    read = parse(text)
    args = [[x] for x in X[:count]]
    found = evaluate_devices(read, args)
    for a, b in zip(found, evaluate_devices(optimize(read), args), strict=True):
        np.testing.assert_array_equal(a, b)
    return found


@pytest.mark.parametrize(
    ("groups", "sums"),
    [
        ("{}", [60, 60, 60, 60]),
        ("{{0,1},{2,3}}", [10, 10, 50, 50]),
        ("[2,2]<=[2,2]T(1,0)", [20, 40, 20, 40]),
        ("{{0},{1,2,3}}", [0, 60, 60, 60]),
        ("{{0},{1},{2},{3}}", [0, 10, 20, 30]),
    ],
)
def test_sums_by_group(groups: str, sums: list[int]) -> None:
    body = f"ROOT y = f32[4] all-reduce(x), replica_groups={groups}, to_apply=add"
    assert [y[0] for y in run(module(body))] == sums


@pytest.mark.parametrize(
    ("attributes", "sums"),
    [
        ("replica_groups={}", [20, 40, 20, 40]),
        ("replica_groups={{0},{1}}, channel_id=1", [10, 10, 50, 50]),
        ("replica_groups={{0,3},{1,2}}, channel_id=1, use_global_device_ids=true", [30] * 4),
    ],
)
def test_groups_of_replicas_and_partitions(attributes: str, sums: list[int]) -> None:
    body = f"ROOT y = f32[4] all-reduce(x), {attributes}, to_apply=add"
    found = run(module(body, ", replica_count=2, num_partitions=2"))
    assert [y[0] for y in found] == sums


def test_a_device_knows_its_replica_and_its_partition() -> None:
    body = "r = u32[] replica-id()\np = u32[] partition-id()\nten = u32[] constant(10)\n"
    body += "t = u32[] multiply(r, ten)\nROOT s = u32[] add(t, p)"
    for header, numbers in (
        (", replica_count=2, num_partitions=2", [0, 1, 10, 11]),
        (", replica_count=4", [0, 10, 20, 30]),
        (", num_partitions=4", [0, 1, 2, 3]),
    ):
        assert run(module(body, header)) == numbers


@pytest.mark.parametrize(
    ("pairs", "lasts"),
    [
        ("{{0,1},{1,2},{2,3},{3,0}}", [33, 3, 13, 23]),
        ("{{0,2}}", [0, 0, 3, 0]),
        ("{{3,3},{2,0}}", [23, 0, 0, 33]),
        ("{}", [0, 0, 0, 0]),
    ],
)
def test_permutations(pairs: str, lasts: list[int]) -> None:
    """A device that nobody sends to gets zeros."""
    body = f"ROOT y = f32[4] collective-permute(x), source_target_pairs={pairs}"
    assert [y[3] for y in run(module(body))] == lasts


@pytest.mark.parametrize(
    "body",
    [
        "s = f32[4] all-reduce-start(x), replica_groups={}, to_apply=add\n"
        "ROOT d = f32[4] all-reduce-done(s)",
        "s = ((f32[4]), f32[4], u32[]) async-start(x), calls=sum\nROOT d = f32[4] async-done(s)",
        "ROOT c = f32[4] call(x), to_apply=sum",
    ],
)
def test_halves_and_calls(body: str) -> None:
    assert [y[0] for y in run(module(body))] == [60] * 4


def test_an_all_gather_in_halves() -> None:
    body = "s = (f32[4], f32[16]) all-gather-start(x), replica_groups={}, dimensions={0}\n"
    for y in run(module(body + "ROOT d = f32[16] all-gather-done(s)")):
        np.testing.assert_array_equal(y, np.concatenate(X))


def test_a_reducer_that_numpy_lacks() -> None:
    """Reducers combine in the order of the group."""
    odd = "add { a = f32[] parameter(0)\nb = f32[] parameter(1)\nh = f32[] constant(0.5)\n"
    odd += "c = f32[] multiply(a, h)\nROOT s = f32[] add(c, b) }\n"
    body = "ROOT y = f32[4] all-reduce(x), replica_groups={{0,1,2},{3}}, to_apply=add"
    found = run(module(body, called=odd))
    wanted = (X[0] / 2 + X[1]) / 2 + X[2]
    for y, expected in zip(found, [wanted, wanted, wanted, X[3]], strict=True):
        np.testing.assert_array_equal(y, expected)


BRANCH = (
    "i = u32[] replica-id()\nk = u32[] constant(2)\nfirst = pred[] compare(i, k), direction=LT\n"
    "ROOT y = f32[4] conditional(first, x, x), true_computation=sum, false_computation=same"
)


def test_a_collective_that_some_devices_do_not_reach_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="wait for each other forever") as caught:
        evaluate_devices(parse(module(BRANCH)), [[x] for x in X])
    assert "device 0 waits in all-reduce `s`" in str(caught.value)
    assert "2 of 4 devices have finished" in str(caught.value)


def test_groups_may_branch_apart() -> None:
    """Devices 0 and 1 exchange values among themselves; 2 and 3 do not take part."""
    called = CALLED.replace("replica_groups={}", "replica_groups={{0,1},{2,3}}")
    assert [y[0] for y in run(module(BRANCH, called=called))] == [10, 10, 20, 30]


def test_collectives_in_different_orders_are_an_error() -> None:
    other = CALLED + "twice { p = f32[4] parameter(0)\n"
    other += "ROOT s = f32[4] all-reduce(p), replica_groups={{1,0},{2,3}}, to_apply=add }\n"
    body = BRANCH.replace("=same", "=twice")
    with pytest.raises(UnsupportedError, match="wait for each other forever"):
        evaluate_devices(parse(module(body, called=other)), [[x] for x in X])


def test_an_error_of_one_device_ends_all() -> None:
    with pytest.raises(ArgumentError, match="must be f32"):
        body = "ROOT c = f32[4] call(x), to_apply=sum"
        evaluate_devices(parse(module(body)), [[X[0]], [X[1]], [X[2][:2]], [X[3]]])


def test_one_device_alone_is_told_of_the_others() -> None:
    read = parse(module("ROOT c = f32[4] call(x), to_apply=sum"))
    with pytest.raises(UnsupportedError, match="exchanges values between 4 devices"):
        evaluate(read, [X[0]])
    with pytest.raises(ArgumentError, match="arguments of 2 devices: it is written for 4"):
        evaluate_devices(read, [[X[0]], [X[1]]])


def test_devices_that_exchange_nothing_are_evaluated_alone() -> None:
    body = "ROOT y = f32[4] all-reduce(x), replica_groups={{0},{1},{2},{3}}, to_apply=add"
    read = parse(module(body))
    np.testing.assert_array_equal(evaluate(read, [X[2]]), X[2])
