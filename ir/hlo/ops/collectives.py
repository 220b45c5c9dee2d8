"""Collective operations on a single device: each returns its operands.

A group of one device has nothing to exchange, so a collective over such groups is the identity,
and a permutation returns zeros on a device that no pair sends to. More than one device is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...dtypes import to_numpy
from ..meaning.values import CallEvaluator, Value
from ..nodes import AnyShape, HloModule, Instruction, Raw, TupleShape
from ..shape_text import show_shape
from ..signatures import Attrs, Shapes, refuse, same_kind, same_shape
from .definition import OpDef

_PERMUTE = "collective-permute"
_IDS = ("replica-id", "partition-id")

_GROUP = re.compile(r"\{([\d,\s]*)\}")
_IOTA = re.compile(r"\[\s*\d+\s*,\s*(\d+)\s*\]\s*<=.*", re.S)
_PAIR = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")


@dataclass(frozen=True, slots=True)
class Devices:
    """The number of devices that a program is written for, by its module's header."""

    replicas: int = 1
    partitions: int = 1

    @property
    def count(self) -> int:
        """Number of devices: replicas times partitions."""
        return self.replicas * self.partitions


def devices(module: HloModule) -> Devices:
    """Return ``replica_count`` and ``num_partitions`` of a header; 1 if missing or not a number."""

    def read(name: str) -> int:
        value = module.attrs.get(name)
        text = value.text.strip() if isinstance(value, Raw) else ""
        return int(text) if text.isdecimal() and len(text) < 10 else 1

    return Devices(read("replica_count"), read("num_partitions"))


def problem(i: Instruction, known: Devices) -> str:
    """Return the reason why a collective cannot run on one device; empty if it can."""
    many = f"replica_count={known.replicas}, num_partitions={known.partitions}"
    if i.opcode in _IDS:
        of = known.replicas if i.opcode == "replica-id" else known.partitions
        return f"its value differs from device to device ({many})" if of > 1 else ""
    if i.opcode == _PERMUTE:
        if known.count > 1 or any(a or b for a, b in pairs(i)):
            return f"it moves values between devices ({many}, pairs {_text(i, PAIRS)})"
    elif (size := group_size(i, known)) != 1:
        groups = f"groups of {size}" if size else "groups that cannot be read"
        return f"it works across devices ({many}, {groups})"
    given = tuple(o.shape for o in i.operands)
    made = i.shape.elements if isinstance(i.shape, TupleShape) else (i.shape,)
    if len(given) == 1 and same_shape(given[0], i.shape):
        return ""
    if len(given) != len(made) or not all(map(same_shape, given, made)):
        shapes = ", ".join(map(show_shape, given))
        return f"its result is {show_shape(i.shape)} for {shapes}, so there is more than one device"
    return ""


PAIRS = "source_target_pairs"


def pairs(i: Instruction) -> list[tuple[int, int]]:
    """Return the ``source_target_pairs`` of a permutation."""
    return [(int(a[:9]), int(b[:9])) for a, b in _PAIR.findall(_text(i, PAIRS))]


def group_size(i: Instruction, known: Devices) -> int:
    """Return the number of devices in a group; 0 if ``replica_groups`` cannot be parsed."""
    text = _text(i, "replica_groups").strip()
    if text in ("", "{}"):
        return known.count
    if (found := _IOTA.fullmatch(text)) is not None:
        return int(found.group(1)[:9])
    groups = _GROUP.findall(text.removeprefix("{").removesuffix("}"))
    return max((len(g.split(",")) for g in groups), default=0)


def _text(i: Instruction, name: str) -> str:
    value = i.attrs.get(name)
    return value.text if isinstance(value, Raw) else ""


def _all_reduce(shapes: Shapes, attrs: Attrs) -> AnyShape:
    return shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))


def _number_of_device(i: Instruction, operands: Shapes) -> None:
    if operands or i.array.dims or not i.array.dtype.is_int:
        refuse(f"it takes nothing and gives an integer, not {show_shape(i.shape)}")


def _exchange(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Return the operands: one device exchanges values only with itself."""
    if i.opcode == _PERMUTE and not pairs(i):
        args = [np.zeros_like(a) for a in args]
    bundled = isinstance(i.shape, TupleShape) and not isinstance(args[0], tuple)
    return tuple(args) if bundled else args[0]


def _zero(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    return np.zeros((), to_numpy(i.array.dtype))


DEVICES = "channel_id? constrain_layout? use_global_device_ids?"
GATHERS = "channel_id? constrain_layout? dimensions use_global_device_ids?"
"""Attributes of collectives, and of those that join pieces along a dimension."""

DEFINITIONS = (
    OpDef(
        "all-reduce",
        attributes=DEVICES,
        calls=("to_apply",),
        shape=_all_reduce,
        result_type=same_kind,
        numpy=_exchange,
        collective=True,
    ),
    OpDef("all-gather", attributes=GATHERS, numpy=_exchange, collective=True),
    OpDef(
        "all-to-all",
        attributes=GATHERS.replace("dimensions", "dimensions?"),
        numpy=_exchange,
        collective=True,
    ),
    OpDef(
        "reduce-scatter",
        attributes=GATHERS,
        calls=("to_apply",),
        numpy=_exchange,
        collective=True,
    ),
    OpDef("collective-broadcast", attributes=DEVICES, numpy=_exchange, collective=True),
    OpDef(_PERMUTE, attributes=DEVICES, numpy=_exchange, collective=True),
    *(
        OpDef(name, check=_number_of_device, one_array=True, numpy=_zero, collective=True)
        for name in _IDS
    ),
)
