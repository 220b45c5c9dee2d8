"""Collectives in one form: groups of devices by number, each of more than one device."""

from __future__ import annotations

from dataclasses import replace

from ...device_groups import Devices
from ...nodes import HloModule, Instruction, Raw, TupleShape
from ...ops.collectives import by_device, devices, exchanges, reached
from ...ops.registry import definition
from ...patterns import build
from ...rewrite import make, map_computations, rebuild, with_attrs


def flatten_devices(module: HloModule) -> HloModule:
    """``all-reduce(x), replica_groups={{0},{1}}``  ->  ``x``; other groups by device: a module of
    replicas and partitions becomes one of partitions"""
    known = devices(module)
    header = {k: v for k, v in module.attrs.items() if k != "replica_count"}
    if known.count > 1:
        header["num_partitions"] = Raw(str(known.count))
    done = map_computations(module, lambda c: rebuild(c, lambda i: _flat(i, known)))
    return done if header == dict(done.attrs) else replace(done, attrs=header)


def _flat(i: Instruction, known: Devices) -> Instruction | None:
    if not definition(i.opcode).collective:
        return None
    if not i.operands:
        return _number(i, known)
    if not exchanges(i, known):
        return _alone(i)
    new = by_device(i, known)
    return None if new.items() <= i.attrs.items() else with_attrs(i, **new)


def _number(i: Instruction, known: Devices) -> Instruction | None:
    """The number of a replica or partition, computed from that of the device."""
    if not exchanges(i, known):
        return build.scalar(0, i.array.dtype)
    of_replica = i.opcode == "replica-id"
    if not of_replica and known.replicas == 1:
        return None
    device = make("partition-id", i.shape)
    if known.partitions == 1:
        return device
    count = build.scalar(known.partitions, i.array.dtype)
    return build.pointwise("divide" if of_replica else "remainder", device, count)


def _alone(i: Instruction) -> Instruction:
    """The operands; zeros for a permutation that sends nothing."""
    values = i.operands
    if not reached(i):
        values = tuple(build.full(0, o.array.dtype, o.array.dims) for o in values)
    if not isinstance(i.shape, TupleShape):
        return values[0]
    return build.tuple_of(values)
