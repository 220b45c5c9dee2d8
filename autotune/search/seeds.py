"""Points that won for other tasks, on other machines or with other sizes, in a task's own space."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...schedule.space.space import Choice
from ..log.records import Json
from .space import Point, Space

FAR = 100.0  # distance of choices that cannot be compared


def nearest_point(space: Space, sketch: str, decisions: Mapping[str, Json]) -> Point | None:
    """Return the valid point of a sketch whose choices are nearest to ``decisions``.

    Numbers are compared by the logarithm of their ratio; decisions that are missing get the
    sketch's default. If the point is not valid, single decisions get their defaults. None if no
    such point is valid, or there is no such sketch.
    """
    for number, s in enumerate(space.sketches):
        if s.name != sketch:
            continue
        usual = [list(d).index(s.default[n]) for n, d in s.decisions.items()]
        at = [
            _nearest(domain, decisions[name]) if name in decisions else usual[n]
            for n, (name, domain) in enumerate(s.decisions.items())
        ]
        tries = [at, *([*at[:n], usual[n], *at[n + 1 :]] for n in range(len(at)))]
        points = (Point(number, tuple(t)) for t in tries)
        return next((p for p in points if space.valid(p)), None)
    return None


def _nearest(domain: Sequence[Choice], wanted: Json) -> int:
    return min(range(len(domain)), key=lambda n: (_apart(domain[n], wanted), n))


def _apart(a: object, b: object) -> float:
    """Return the distance of two choices; 0 if they are equal."""
    match a, b:
        case bool() | str() | None, _:
            return 0.0 if type(a) is type(b) and a == b else FAR
        case ((int() | float()), (int() | float())):
            if a > 0 and b > 0:
                return abs(math.log2(a) - math.log2(b))  # a quotient may not be a float
            return 0.0 if a == b else FAR
        case ((tuple() | list()), (tuple() | list())) if len(a) == len(b):
            return sum(_apart(x, y) for x, y in zip(a, b, strict=True))
        case _:
            return FAR
