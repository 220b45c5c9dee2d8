"""Shardings of parameters, as XLA prints them: a device's part of a whole array.

``{replicated}``, ``{devices=[2,1]<=[2]}``, ``{devices=[2,1]0,1}`` and
``{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}``. Those of tuples or of one device are
not read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

import numpy as np

from ..arrays import Array
from .device_groups import MANY
from .nodes import Instruction, Raw

_TILES = re.compile(
    r"\{\s*devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))\s*([a-z_]*)[^{}]*\}"
)
_REPLICATED = ("last_tile_dim_replicate", "last_tile_dims")


@dataclass(frozen=True, slots=True)
class Sharding:
    """Parts of an array: how many along each dimension, and the place of each device's part."""

    counts: tuple[int, ...]
    places: tuple[int, ...]

    def whole(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Return the dimensions of the array whose parts have ``dims``."""
        return tuple(n * d for n, d in zip(self.counts, dims, strict=True))

    def part(self, array: Array, dims: tuple[int, ...], device: int) -> Array:
        """Return a device's part, of ``dims``, of a whole array."""
        at = np.unravel_index(self.places[device], self.counts)
        cut = (slice(int(k) * d, (int(k) + 1) * d) for k, d in zip(at, dims, strict=True))
        return array[tuple(cut)]


def tiles(parameter: Instruction) -> Sharding | None:
    """Return how a parameter is cut; None if all devices have all of it, or that is unknown."""
    value = parameter.attrs.get("sharding")
    found = _TILES.fullmatch(value.text.strip()) if isinstance(value, Raw) else None
    if found is None:
        return None
    shape, dims, order, listed, last = found.groups()
    counts = _numbers(shape)
    if not 0 < prod(counts) <= MANY:
        return None
    try:
        devices = np.asarray(_numbers(listed) if listed else _iota(dims, order)).reshape(counts)
    except ValueError:  # sizes that do not multiply to each other
        return None
    if last in _REPLICATED:
        counts, devices = counts[:-1], devices.reshape(-1, counts[-1])
    rows = devices.reshape(prod(counts), -1)
    places = {int(device): n for n, row in enumerate(rows) for device in row}
    if sorted(places) != list(range(len(places))):
        return None
    return Sharding(counts, tuple(places[n] for n in range(len(places))))


def _iota(dims: str, order: str | None) -> Array:
    numbers = np.arange(prod(_numbers(dims))).reshape(_numbers(dims))
    return numbers.transpose(_numbers(order) if order else None).reshape(-1)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word[:9]) for word in text.split(",") if word)
