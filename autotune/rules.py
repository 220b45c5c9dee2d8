"""How open sizes are served: each compiled, or rounded up to those of a bucket."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TypeAlias

from ..ir.errors import ArgumentError

OpenSize: TypeAlias = int | range | None
"""A size of an input: fixed, one of a range, or any (None)."""

OpenShapes: TypeAlias = Mapping[str | int, Sequence[OpenSize]]
"""Sizes of inputs, by name or place."""

SizeRule: TypeAlias = str | int | Sequence[int]
"""``"exact"``, ``"buckets"`` (powers of two), N (multiples of N), or a list of sizes."""

SIZES = 'shapes={"input": (1, 3, 224, 224)}; a size may be a range, such as range(1, 65), or None'
HINT = 'rules: "exact", "buckets" (powers of two), 16 (multiples of 16), [32, 64, 128]'


@dataclass(frozen=True, slots=True)
class Buckets:
    """Sizes that are compiled: multiples of ``step``, those of ``sizes``, or powers of two."""

    step: int = 0
    sizes: tuple[int, ...] = ()

    def up(self, n: int, what: str) -> int:
        """Return the smallest bucket that holds a size; ``ArgumentError`` if none does."""
        if self.step:
            return max(1, -(-n // self.step)) * self.step
        if not self.sizes:
            return 1 << max(0, n - 1).bit_length()
        at = bisect_left(self.sizes, n)
        if at == len(self.sizes):
            raise ArgumentError(
                what, f"its size {n} is over the largest bucket, {self.sizes[-1]}", hint=HINT
            )
        return self.sizes[at]


def read_rule(rule: SizeRule) -> Buckets | None:
    """Return the buckets of a rule; None for ``"exact"``. ``ArgumentError`` for no rule."""
    match rule:
        case str() if rule == "exact":
            return None
        case str() if rule == "buckets":
            return Buckets()
        case int() if rule > 0 and not isinstance(rule, bool):
            return Buckets(step=rule)
        case list() | tuple() | range() if rule and all(type(n) is int and n > 0 for n in rule):
            return Buckets(sizes=tuple(sorted(set(rule))))
        case _:
            raise ArgumentError(f"rule={rule!r}", "no such rule for sizes", hint=HINT)


def checked(shapes: OpenShapes | None) -> OpenShapes | None:
    """Return shapes with sizes as Python's integers; ``ArgumentError`` for what are none."""
    if shapes is not None and not isinstance(shapes, Mapping):
        raise ArgumentError(f"shapes={shapes!r}", "no sizes by input", hint=SIZES)
    return {which: _checked(which, sizes) for which, sizes in (shapes or {}).items()}


def _checked(which: str | int, sizes: object) -> tuple[OpenSize, ...]:
    if not isinstance(sizes, Iterable) or not all(n is None or _is_size(n) for n in sizes):
        raise ArgumentError(f"shapes={{{which!r}: {sizes!r}}}", "these are no sizes", hint=SIZES)
    return tuple(int(n) if isinstance(n, Integral) else n for n in sizes)


def _is_size(n: object) -> bool:
    return isinstance(n, Integral | range) and not isinstance(n, bool)


def is_open(shapes: OpenShapes | None) -> bool:
    """True if any size is one of a range, or any."""
    return any(not isinstance(n, int) for sizes in (shapes or {}).values() for n in sizes)


def fixed(shapes: OpenShapes | None) -> dict[str | int, tuple[int, ...]] | None:
    """Return shapes of which no size is open, for a front-end."""
    if not shapes:
        return None
    return {w: tuple(n for n in sizes if isinstance(n, int)) for w, sizes in shapes.items()}


def check_sizes(which: str | int, found: Sequence[int], wanted: Sequence[OpenSize]) -> None:
    """Raise ``ArgumentError`` unless an argument's sizes are among those asked for."""
    what = f"input {which!r}"
    told = f"[{', '.join('any' if n is None else _size(n) for n in wanted)}]"
    shape = f"[{', '.join(map(str, found))}]"
    if len(found) != len(wanted):
        raise ArgumentError(what, f"an array of shape {shape}, for shapes= has {told}")
    for n, allowed in zip(found, wanted, strict=True):
        if not (allowed is None or n == allowed or (isinstance(allowed, range) and n in allowed)):
            raise ArgumentError(what, f"an array of shape {shape}, for shapes= has {told}")


def _size(n: int | range) -> str:
    if isinstance(n, int):
        return str(n)
    return f"{n.start}..{n.stop - 1}" + (f" by {n.step}" if n.step != 1 else "")
