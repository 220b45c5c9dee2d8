"""Shapes as HLO text: ``f32[2,<=3]{1,0}``, tuples of them, ``token[]``.

A layout's tiles, memory space and element bits (``{1,0:T(8,128)S(1)}``) were chosen by another
compiler and are kept as text, as are buffers (``b(f32[2,3])``), which no operation here computes
on. A dimension of unknown size (``?``) has size ``UNKNOWN``; such shapes are parsed and printed,
but no operation computes on them.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from ..dtypes import BY_NAME
from .lexer import MAX_DEPTH, Cursor
from .nodes import AnyShape, Shape, TokenShape, TupleShape

UNKNOWN = -1
MAX_BYTES = 1 << 62
MAX_RANK = 64

_SHAPE = re.compile(
    r"([a-z]\w*)[ \t]*\[([^\]\n]*)\](?:(?:[ \t]+(?=\{\d))?\{([\d,\s]*)(:[^{}\n]*)?\})?"
)
_BUFFER = re.compile(r"b\(\s*([a-z]\w*\[[^\]\n]*\](?:\{[^{}\n]*\})?)\s*\)")
_DIM = re.compile(r"\s*(<=)?\s*(\d+|\?)\s*")

Cache = dict[str, "Shape | TokenShape"]


def starts_shape(cursor: Cursor) -> bool:
    """True if a shape or a tuple of shapes is next."""
    text, pos = cursor.text, cursor.pos
    return bool(cursor.at("(") or _SHAPE.match(text, pos) or _BUFFER.match(text, pos))


def parse_shape(cursor: Cursor, cache: Cache, depth: int = 0) -> AnyShape:
    """Parse one shape; ``ParseError`` if there is none. ``cache`` maps texts to earlier shapes."""
    if cursor.at("("):
        if depth >= MAX_DEPTH:
            cursor.fail("tuple shape is nested too deep", f"over {MAX_DEPTH} levels")
        cursor.take("(")
        elements: list[AnyShape] = []
        while not cursor.take(")"):
            if elements:
                cursor.expect(",", "between the shapes of a tuple")
            elements.append(parse_shape(cursor, cache, depth + 1))
        return TupleShape(tuple(elements))
    start = cursor.pos
    if (buffer := cursor.match(_BUFFER)) is not None:
        return TokenShape(f"b({buffer.group(1)})")
    found = cursor.match(_SHAPE)
    if found is None:
        cursor.fail("expected a shape such as `f32[2,3]`", f"found {cursor.found()}")
    text = found.group()
    if (known := cache.get(text)) is None:
        known = cache[text] = _shape(cursor, found, start)
    return known


def _shape(cursor: Cursor, found: re.Match[str], start: int) -> Shape | TokenShape:
    name, inside, layout_text = found.group(1), found.group(2), found.group(3)
    tiling = (found.group(4) or ":")[1:].strip()
    if name in ("token", "opaque"):
        return TokenShape(f"{name}[]")
    if name not in BY_NAME:
        close = get_close_matches(name, BY_NAME, 1)
        hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(BY_NAME)}"
        cursor.fail(f"unknown element type `{name}`", hint=hint, at=start)
    dims: list[int] = []
    dynamic: list[bool] = []
    for part in inside.split(",") if inside.strip() else ():
        one = _DIM.fullmatch(part)
        if one is None:
            cursor.fail(f"`{part.strip()}` is not a dimension", f"in `{found.group()}`", at=start)
        size = UNKNOWN if one.group(2) == "?" else int(one.group(2)[:20])
        dims.append(size)
        dynamic.append(bool(one.group(1)) or size == UNKNOWN)
    dtype = BY_NAME[name]
    order = layout_text.split(",") if layout_text and layout_text.strip() else []
    numbers = all(d.strip().isdecimal() for d in order)
    layout = tuple(int(d[:20]) for d in order) if numbers else (UNKNOWN,)
    if layout and sorted(layout) != list(range(len(dims))):
        why = f"{{{layout_text}}} must name each of the {len(dims)} dimensions once"
        cursor.fail("layout does not fit the shape", why, at=start)
    if too_large(dims, dtype.bytes):
        why = f"`{found.group()}` has more than {MAX_BYTES} bytes or {MAX_RANK} dimensions"
        cursor.fail("shape is too large", why, at=start)
    marks = tuple(dynamic) if any(dynamic) else ()
    return Shape(dtype, tuple(dims), layout or None, marks, tiling)


def too_large(dims: list[int] | tuple[int, ...], element_bytes: int) -> bool:
    """True if an array exceeds ``MAX_BYTES`` or ``MAX_RANK``.

    Dimensions of size 0 count as 1, so that strides stay in range too.
    """
    total = element_bytes
    for d in dims:
        total *= max(1, d)
        if total > MAX_BYTES:
            return True
    return len(dims) > MAX_RANK


def show_shape(shape: AnyShape) -> str:
    """Return text such as ``f32[2,3]{1,0}``; an array without a layout gets the row-major one."""
    match shape:
        case TupleShape(elements=elements):
            parts = []
            for i, e in enumerate(elements):
                mark = f"/*index={i}*/" if i and i % 5 == 0 else ""
                parts.append(mark + show_shape(e))
            return "(" + ", ".join(parts) + ")"
        case TokenShape(text=text):
            return text
        case Shape(dtype=dtype, dims=dims, layout=layout, dynamic=dynamic, tiling=tiling):
            sizes = ["?" if d == UNKNOWN else str(d) for d in dims]
            if dynamic:
                sizes = [
                    f"<={d}" if m and d != "?" else d for d, m in zip(sizes, dynamic, strict=True)
                ]
            text = f"{dtype.name}[{','.join(sizes)}]"
            order = range(len(dims) - 1, -1, -1) if layout is None else layout
            inside = ",".join(map(str, order)) + (f":{tiling}" if tiling else "")
            return text + "{" + inside + "}" if inside else text
