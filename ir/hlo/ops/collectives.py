"""Operations across devices: reductions, gathers, scatters, permutations, and numbers of devices.

The groups of a collective name replicas, partitions or devices (``ids``). Over groups of one device
it hands its operands on; over larger ones the interpreter of all devices (``interp.devices``) and
the runtime exchange values. A permutation gives zeros on a device that no pair sends to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...dtypes import to_numpy, u32
from ..device_groups import (
    Devices,
    Groups,
    Ids,
    linked,
    misfit,
    named_by,
    on_devices,
    parse_groups,
    parse_pairs,
    show_groups,
)
from ..meaning.values import Value, shaped
from ..nodes import AnyShape, HloModule, Instruction, Raw, Shape, TupleShape
from ..shape_text import show_shape
from ..signatures import (
    Attrs,
    Shapes,
    arrays,
    attr,
    dims_of,
    floats_or_same,
    leaves,
    plain,
    refuse,
    require_scalar_parameters,
    same_shape,
)
from .definition import OpDef, Pattern

_PERMUTE = "collective-permute"
_BY_DEVICE = ("all-reduce", "all-gather", "reduce-scatter")
"""Operations whose groups name devices, or replicas with all of their partitions."""

GROUPS, PAIRS = "replica_groups", "source_target_pairs"


def devices(module: HloModule) -> Devices:
    """Return ``replica_count`` and ``num_partitions`` of a header.

    Where it has neither, as in text from before optimization, they are the fewest that have the
    numbers in the groups of the module's collectives.
    """
    known = {n: _number(module, n) for n in ("replica_count", "num_partitions")}
    if any(known.values()):
        return Devices(known["replica_count"] or 1, known["num_partitions"] or 1)
    most = dict.fromkeys(Ids, 1)
    for i in (i for c in module.computations for i in c.instructions):
        for group in written(i) or () if GROUPS in i.attrs or PAIRS in i.attrs else ():
            most[ids(i)] = max(most[ids(i)], *(n + 1 for n in group), 1)
    replicas = max(most[Ids.REPLICAS], most[Ids.REPLICAS_WHOLE])
    return Devices(replicas, max(most[Ids.PARTITIONS], -(-most[Ids.DEVICES] // replicas)))


def _number(module: HloModule, name: str) -> int:
    value = module.attrs.get(name)
    text = value.text.strip() if isinstance(value, Raw) else ""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def ids(i: Instruction) -> Ids:
    """Return the meaning of the numbers in a collective's groups, as XLA defines it."""
    channel = i.attrs.get("channel_id")
    if not isinstance(channel, int) or channel <= 0:
        return Ids.REPLICAS
    if i.opcode.removesuffix("-start") not in _BY_DEVICE:
        return Ids.PARTITIONS
    return Ids.DEVICES if i.attrs.get("use_global_device_ids") is True else Ids.REPLICAS_WHOLE


def written(i: Instruction) -> Groups | None:
    """Return the groups or pairs as the text has them; None if they cannot be read."""
    return parse_pairs(_text(i, PAIRS)) if PAIRS in i.attrs else parse_groups(_text(i, GROUPS))


def groups(i: Instruction, known: Devices) -> Groups:
    """Return the devices that exchange values with each other, by number; all are named once.

    Those of a permutation are in no particular order, and devices that no pair names in none.
    """
    if i.opcode == _PERMUTE:
        return linked(pairs(i, known))
    return on_devices(written(i) or (), ids(i), known)


def pairs(i: Instruction, known: Devices) -> Groups:
    """Return the pairs of a permutation by the numbers of devices: (from, to)."""
    found = written(i)
    return on_devices(found, ids(i), known) if found else ()


def exchanges(i: Instruction, known: Devices) -> bool:
    """True if a collective's result depends on other devices, or on the device itself."""
    if i.opcode == "partition-id":
        return known.partitions > 1
    if i.opcode == "replica-id":
        return known.replicas > 1
    if i.opcode == _PERMUTE and known.count > 1:
        return True
    return any(len(g) > 1 for g in groups(i, known))


def by_device(i: Instruction, known: Devices) -> dict[str, Any]:
    """Return the attributes with which a collective's groups or pairs are of devices by number.

    All devices are partitions then. Channels only tell XLA's own collectives apart.
    """
    name, found = (PAIRS, pairs) if i.opcode == _PERMUTE else (GROUPS, groups)
    new: dict[str, Any] = {name: Raw(show_groups(found(i, known))), "channel_id": 1}
    return new | {"use_global_device_ids": True} if i.opcode in _BY_DEVICE else new


def reached(i: Instruction) -> bool:
    """False for a permutation without pairs, whose results are zeros."""
    return i.opcode != _PERMUTE or bool(written(i))


def alone(i: Instruction, values: Sequence[Value]) -> Value:
    """Return the value of a collective on a device that has nobody to exchange values with."""
    if not i.operands:
        return number(i, 0, Devices())
    return shaped(i, values if reached(i) else [np.zeros_like(v) for v in values])


def number(i: Instruction, device: int, known: Devices) -> Value:
    """Return the number of a device's replica or partition."""
    replica, partition = divmod(device, known.partitions)
    found = replica if i.opcode == "replica-id" else partition
    return np.asarray(found).astype(to_numpy(i.array.dtype))


def problem(i: Instruction, known: Devices) -> tuple[str, str]:
    """Return the reason why a collective cannot be computed on these devices, and a hint; two empty
    texts if it can."""
    if any(isinstance(s, Shape) and any(s.dynamic) for o in (i, *i.operands) for s in _flat(o)):
        return "it exchanges arrays whose sizes are known only at run time", "pad them before it"
    found = written(i)
    if found is None:
        name = PAIRS if PAIRS in i.attrs else GROUPS
        return f"its {name} cannot be read: {_text(i, name)[:80]}", "write them as {{0,1},{2,3}}"
    count = named_by(ids(i), known)
    hint = "write replica_count= or num_partitions= in the module's header"
    if i.opcode == _PERMUTE:
        highest = max((n for pair in found for n in pair), default=0)
        if highest >= count:
            return f"its pairs name {highest}, and there are {count} {ids(i).value} ({known})", hint
    elif reason := misfit(found, count):
        return f"its groups do not fit {count} {ids(i).value} ({known}): {reason}", hint
    made, sizes = _pieces(i), {len(g) for g in groups(i, known)}
    if made and sizes != {made}:
        have = " and ".join(map(str, sorted(sizes)))
        why = f"its shapes say that {made} devices exchange values, its groups have {have}"
        return f"{why} ({known})", hint
    return "", ""


def _flat(i: Instruction) -> Iterator[AnyShape]:
    yield from leaves(i.shape)


def _pieces(i: Instruction) -> int:
    """Return the number of devices in a group that an instruction's shapes say; 0 for any."""
    match i.opcode:
        case "all-gather":
            return _ratio(leaves(i.shape)[0], i.operands[0].shape, i.attrs)
        case "reduce-scatter":
            return _ratio(i.operands[0].shape, leaves(i.shape)[0], i.attrs)
        case "all-to-all" if isinstance(i.shape, TupleShape):
            return len(i.operands)
        case _:
            return 0


def _ratio(long: AnyShape, short: AnyShape, attrs: Mapping[str, Any]) -> int:
    assert isinstance(long, Shape) and isinstance(short, Shape)
    d = attrs["dimensions"][0]
    return long.dims[d] // short.dims[d] if short.dims[d] else 0


def _text(i: Instruction, name: str) -> str:
    value = i.attrs.get(name)
    return value.text if isinstance(value, Raw) else ""


def _all_reduce(shapes: Shapes, attrs: Attrs) -> AnyShape:
    return shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))


def _same(shapes: Shapes, attrs: Attrs) -> AnyShape:
    given = arrays(shapes)
    return given[0] if len(given) == 1 else TupleShape(tuple(given))


def _reduced(i: Instruction, operands: Shapes) -> None:
    _grouped(i, operands)
    for s in arrays([e for o in operands for e in leaves(o)]):
        require_scalar_parameters(attr(i.attrs, "to_apply", object), [s, s])


def _grouped(i: Instruction, operands: Shapes) -> None:
    """Require groups that name no number twice, if they can be read."""
    if not operands:
        refuse("it has no operand")
    if i.attrs.get("use_global_device_ids") is True and "channel_id" not in i.attrs:
        refuse("use_global_device_ids=true needs a channel_id")
    named = [n for g in written(i) or () for n in g]
    if len(set(named)) != len(named):
        refuse(f"{GROUPS}={_text(i, GROUPS)} names a number twice")
    if any(not g for g in written(i) or ()):
        refuse(f"{GROUPS}={_text(i, GROUPS)} has an empty group")


def _gathered(i: Instruction, operands: Shapes) -> None:
    _grouped(i, operands)
    _cut(i, leaves(i.shape), operands)


def _scattered(i: Instruction, operands: Shapes) -> None:
    _reduced(i, operands)
    _cut(i, operands, leaves(i.shape))


def _cut(i: Instruction, long: Shapes, short: Shapes) -> None:
    """Require arrays that are a whole number of others along the one dimension."""
    if len(long) != len(short):
        refuse(f"its result is {show_shape(i.shape)} for {len(i.operands)} operands")
    known = {len(g) for g in written(i) or ()} if ids(i) is not Ids.REPLICAS_WHOLE else set()
    if len(known) > 1:
        refuse(f"{GROUPS}={_text(i, GROUPS)} have several sizes")
    for n, (whole, piece) in enumerate(zip(arrays(long), arrays(short), strict=True)):
        d = _one_dimension(i, piece.rank)
        others = whole.rank == piece.rank and whole.dtype == piece.dtype
        if not others or _without(whole, d) != _without(piece, d):
            refuse(f"{show_shape(whole)} is not made of {show_shape(piece)} along dimension {d}")
        count = whole.dims[d] // piece.dims[d] if piece.dims[d] else min(known, default=0)
        if count * piece.dims[d] != whole.dims[d] or not known <= {count}:
            size = f" by groups of {min(known)}" if known else ""
            refuse(f"value {n}: {show_shape(piece)} does not make {show_shape(whole)}{size}")


def _one_dimension(i: Instruction, rank: int) -> int:
    dims = dims_of(i.attrs, "dimensions", rank)
    if len(dims) != 1:
        refuse("`dimensions` is one dimension")
    return dims[0]


def _without(s: Shape, d: int) -> tuple[int, ...]:
    return s.dims[:d] + s.dims[d + 1 :]


def _all_to_all(i: Instruction, operands: Shapes) -> None:
    """An array cut along a dimension, or as many arrays as a group has devices."""
    _grouped(i, operands)
    given, made = arrays(operands), arrays(leaves(i.shape))
    if len(given) != len(made) or not all(map(same_shape, given, made)):
        shapes = ", ".join(map(show_shape, given))
        refuse(f"its result is {show_shape(i.shape)}, its operands are {shapes}")
    if isinstance(i.shape, TupleShape):
        if any(s.dims != given[0].dims or s.dtype != given[0].dtype for s in given):
            refuse("its operands differ in shape")
        if "dimensions" in i.attrs:
            refuse("it exchanges whole arrays, and `dimensions` says to cut them")
        return
    d = _one_dimension(i, given[0].rank)
    for g in written(i) or ():
        if given[0].dims[d] % len(g):
            refuse(f"dimension {d} of {show_shape(given[0])} has no {len(g)} equal pieces")


def _permuted(i: Instruction, operands: Shapes) -> None:
    """Sources and targets each name a number once."""
    if not operands:
        refuse("it has no operand")
    attr(i.attrs, PAIRS, object)
    for n, what in enumerate(("source", "target")):
        named = [pair[n] for pair in written(i) or () if len(pair) == 2]
        if len(set(named)) != len(named):
            refuse(f"{PAIRS}={_text(i, PAIRS)} has a {what} twice")


def _number_of_device(i: Instruction, operands: Shapes) -> None:
    if operands or plain(i.array) != Shape(u32):
        refuse(f"it takes nothing and gives a u32[], not {show_shape(i.shape)}")


DEVICES = "channel_id? constrain_layout? use_global_device_ids?"
GATHERS = "channel_id? constrain_layout? dimensions use_global_device_ids?"
"""Attributes of collectives, and of those that join pieces along a dimension."""


def _collective(name: str, attributes: str, further: str = GROUPS, **rest: Any) -> OpDef:
    rest |= {"collective": True, "pattern": Pattern.LIBRARY}
    return OpDef(name, attributes=attributes, further=further, **rest)


DEFINITIONS = (
    _collective(
        "all-reduce",
        DEVICES,
        f"{GROUPS} mode",
        calls=("to_apply",),
        shape=_all_reduce,
        result_type=floats_or_same,
        check=_reduced,
    ),
    _collective("all-gather", GATHERS, f"{GROUPS} mode", check=_gathered),
    _collective("all-to-all", "channel_id? constrain_layout? dimensions?", check=_all_to_all),
    _collective("reduce-scatter", GATHERS, f"{GROUPS} mode", calls=("to_apply",), check=_scattered),
    _collective("collective-broadcast", "channel_id?", shape=_same, check=_grouped),
    _collective(_PERMUTE, "channel_id?", f"{PAIRS} slice_sizes", shape=_same, check=_permuted),
    *(
        _collective(name, "", "", check=_number_of_device, one_array=True)
        for name in ("replica-id", "partition-id")
    ),
)
