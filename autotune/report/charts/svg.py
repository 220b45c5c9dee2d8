"""SVG elements as escaped text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from markupsafe import Markup, escape

Attribute: TypeAlias = str | float | None
Place: TypeAlias = tuple[float, float]


def tag(name: str, *children: str, **attributes: Attribute) -> Markup:
    """Return an element; children that are not ``Markup``, and attributes, are escaped.

    In an attribute's name ``_`` stands for ``-``; a last one is dropped, so that ``class_`` works.
    Attributes that are None are left out, numbers are rounded to a tenth of a pixel.
    """
    pairs = ((k.rstrip("_").replace("_", "-"), v) for k, v in attributes.items() if v is not None)
    given = "".join(f' {k}="{escape(number(v))}"' for k, v in pairs)
    inside = "".join(escape(child) for child in children)
    return Markup(f"<{name}{given}>{inside}</{name}>" if inside else f"<{name}{given}/>")


def number(value: str | float) -> str:
    """Return a number with at most one decimal; text as it is."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def joined(parts: Iterable[str]) -> Markup:
    """Return elements one after the other."""
    return Markup("").join(parts)


def path(points: Iterable[Place]) -> str:
    """Return points as the value of a ``points`` attribute."""
    return " ".join(f"{number(x)},{number(y)}" for x, y in points)


def picture(width: float, height: float, label: str, *children: str, kind: str = "") -> Markup:
    """Return a whole picture; ``label`` is what it is called by screen readers."""
    box = f"0 0 {number(width)} {number(height)}"
    name = f"chart {kind}".strip()
    return tag("svg", *children, class_=name, viewBox=box, role="img", aria_label=label)
