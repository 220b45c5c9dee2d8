"""Devices of a program, and the groups of them that collectives name, in every form of XLA's text.

A device has two coordinates, its replica and its partition; its number, which is the rank of its
process, is ``replica * partitions + partition``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from itertools import chain, pairwise
from math import prod
from typing import TypeAlias

import numpy as np

Groups: TypeAlias = tuple[tuple[int, ...], ...]

MANY = 1 << 16  # devices of a program; more are not read

_LISTS = re.compile(r"\{\s*(?:\{[\d,\s]*\}\s*,?\s*)*\}")
_GROUP = re.compile(r"\{([\d,\s]*)\}")
_IOTA = re.compile(r"\[([\d,\s]+)\]\s*<=\s*\[([\d,\s]+)\]\s*(?:T\(([\d,\s]+)\))?")
_MESH = re.compile(r"@?mesh\[([^\]]*)\]\s*\{([^}]*)\}")
_AXIS = re.compile(r"'([^']*)'(?:\s*=\s*(\d+))?(?:\s*:\s*\((\d+)\)\s*(\d+))?")


@dataclass(frozen=True, slots=True)
class Devices:
    """The numbers of replicas and of partitions that a program is written for."""

    replicas: int = 1
    partitions: int = 1

    @property
    def count(self) -> int:
        """Number of devices: replicas times partitions."""
        return self.replicas * self.partitions

    def __str__(self) -> str:
        return f"replica_count={self.replicas}, num_partitions={self.partitions}"


class Ids(Enum):
    """The meaning of the numbers in a collective's groups."""

    REPLICAS = "replicas"  # of one partition
    PARTITIONS = "partitions"  # of one replica
    REPLICAS_WHOLE = "replicas with all of their partitions"
    DEVICES = "devices"


def parse_groups(text: str) -> Groups | None:
    """Return the groups of a text, none for "all in one"; None if it cannot be read.

    ``{{0,1},{2,3}}``, ``[2,2]<=[4]``, ``[2,2]<=[2,2]T(1,0)`` or ``mesh['x'=2,'y'=2] {'y'}``.
    """
    text = text.strip()
    if text in ("", "{}"):
        return ()
    if len(text) > 8 * MANY:
        return None
    if _LISTS.fullmatch(text):
        groups = tuple(_numbers(g) for g in _GROUP.findall(text[1:-1]))
        return groups if all(n < MANY for g in groups for n in g) else None
    try:
        if found := _IOTA.fullmatch(text):
            return _iota(*(_numbers(part or "") for part in found.groups()))
        if found := _MESH.fullmatch(text):
            return _mesh(_AXIS.findall(found[1]), _AXIS.findall(found[2]))
    except ValueError:  # sizes that do not multiply to each other
        return None
    return None


def parse_pairs(text: str) -> Groups | None:
    """Return the pairs of ``{{0,1},{1,0}}``; None if the text is not a list of pairs."""
    found = parse_groups(text) if text.strip().startswith("{") or not text.strip() else None
    return found if found is not None and all(len(p) == 2 for p in found) else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word[:9]) for word in text.replace(",", " ").split())


def _iota(shape: tuple[int, ...], dims: tuple[int, ...], order: tuple[int, ...]) -> Groups:
    """``[groups, size]<=[dims]T(order)``: numbers in order, transposed and cut into groups."""
    if len(shape) != 2 or not 0 < prod(shape) <= MANY or prod(dims) != prod(shape):
        raise ValueError("sizes")
    numbers = np.arange(prod(dims)).reshape(dims)
    return _rows(numbers.transpose(order or None).reshape(shape))


def _mesh(axes: list[tuple[str, ...]], used: list[tuple[str, ...]]) -> Groups:
    """One group for each place in the axes of a mesh that are not used, with all that are."""
    names = [name for name, _, _, _ in axes]
    dims = [int(size[:9] or 1) for _, size, _, _ in axes]
    if not 0 < prod(dims) <= MANY:
        raise ValueError("sizes")
    parts = {n: (1, size) for n, size in enumerate(dims)}
    for name, _, before, size in used:
        if before:
            parts[names.index(name)] = (int(before[:9]), int(size[:9]))
    cut = [d for n, size in enumerate(dims) for d in _in_three(size, *parts[n])]
    places = [3 * names.index(name) + 1 for name, _, _, _ in used]
    rest = [d for d in range(len(cut)) if d not in places]
    numbers = np.arange(prod(dims)).reshape(cut).transpose([*rest, *places])
    return _rows(numbers.reshape(-1, prod(cut[d] for d in places)))


def _in_three(size: int, before: int, inner: int) -> tuple[int, int, int]:
    """Return the sizes of an axis before, in and after the part of it that is used."""
    return before, inner, size // max(1, before * inner)


def _rows(numbers: np.ndarray[tuple[int, ...], np.dtype[np.int_]]) -> Groups:
    return tuple(tuple(int(n) for n in row) for row in numbers)


def on_devices(groups: Groups, ids: Ids, devices: Devices) -> Groups:
    """Return groups by the numbers of their devices; no groups mean that all are in one."""
    replicas, partitions = range(devices.replicas), range(devices.partitions)
    match ids:
        case Ids.REPLICAS:
            rows = groups or (tuple(replicas),)
            return tuple(
                tuple(r * devices.partitions + p for r in row) for p in partitions for row in rows
            )
        case Ids.PARTITIONS:
            rows = groups or (tuple(partitions),)
            return tuple(
                tuple(r * devices.partitions + p for p in row) for r in replicas for row in rows
            )
        case Ids.REPLICAS_WHOLE:
            rows = groups or (tuple(replicas),)
            return tuple(
                tuple(r * devices.partitions + p for r in row for p in partitions) for row in rows
            )
        case Ids.DEVICES:
            return groups or (tuple(range(devices.count)),)


def named_by(ids: Ids, devices: Devices) -> int:
    """Return how many different numbers groups may name."""
    match ids:
        case Ids.PARTITIONS:
            return devices.partitions
        case Ids.DEVICES:
            return devices.count
        case _:
            return devices.replicas


def misfit(groups: Groups, count: int) -> str:
    """Return why groups do not name each of ``count`` devices once; empty if they do."""
    named = sorted(chain.from_iterable(groups))
    if not groups or named == list(range(count)):
        return ""
    if named and named[-1] >= count:
        return f"they name {named[-1]}, and there are {count}"
    twice = [a for a, b in pairwise(named) if a == b]
    if twice:
        return f"{twice[0]} is in two groups"
    missing = next(n for n in range(count) if n not in set(named))
    return f"{missing} is in no group"


def linked(pairs: Groups) -> Groups:
    """Return the sets of devices that pairs join, directly or by way of others."""
    home: dict[int, frozenset[int]] = {}
    for a, b in pairs:
        joined = home.get(a, frozenset((a,))) | home.get(b, frozenset((b,)))
        home |= dict.fromkeys(joined, joined)
    return tuple(sorted({tuple(sorted(s)) for s in home.values()}))


def show_groups(groups: Groups) -> str:
    """Return groups as text, ``{{0,1},{2,3}}``."""
    return "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"
