"""Parsing and printing the attributes of instructions; one table tells how each is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .lexer import Cursor
from .nodes import Computation, ConvLabels, PadDim, Raw, SliceDim, Window, WindowDim

KINDS: dict[str, str] = {
    name: kind
    for kind, names in {
        "ints": "dimensions offset_dims collapsed_slice_dims start_index_map slice_sizes "
        "operand_batching_dims start_indices_batching_dims update_window_dims "
        "inserted_window_dims scatter_dims_to_operand_dims input_batching_dims "
        "scatter_indices_batching_dims lhs_contracting_dims rhs_contracting_dims lhs_batch_dims "
        "rhs_batch_dims lhs_ragged_dims rhs_group_dims dynamic_slice_sizes fft_length",
        "int": "index k iota_dimension feature_group_count batch_group_count index_vector_dim "
        "feature_index exponent_bits mantissa_bits channel_id delta num_carries",
        "float": "epsilon",
        "bool": "is_stable largest indices_are_sorted unique_indices lower left_side unit_diagonal "
        "frozen is_composite is_reverse is_associative use_global_device_ids constrain_layout "
        "is_host_transfer custom_call_has_side_effect skips_holes",
        "word": "direction type distribution algorithm kind fft_type transpose_a api_version",
        "string": "custom_call_target",
        "computation": "to_apply condition body select scatter true_computation false_computation "
        "calls",
        "computations": "branch_computations called_computations",
        "window": "window",
        "labels": "dim_labels",
        "slices": "slice",
        "pads": "padding",
    }.items()
    for name in names.split()
}
"""How the value of an attribute is written. Any other attribute is ``Raw``."""

FREE_TEXT = frozenset(
    {
        "control-predecessors",
        "frontend_attributes",
        "origin",
        "original_value",
        "outer_dimension_partitions",
        "parameter_replication",
        "result_accuracy",
        "sharding",
        "statistics",
    }
)
"""Attributes that never change what a module computes."""

COMMON = FREE_TEXT | {"backend_config", "metadata"}
"""Attributes that any instruction may have."""

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf|nan)(?![\w.])")
_SLICE = re.compile(r"\[\s*(\d{1,18})\s*:\s*(\d{1,18})\s*(?::\s*(-?\d{1,18})\s*)?\]")
_PADS = re.compile(r"(?:-?\d{1,18}(?:_-?\d{1,18}){1,2}(?:x-?\d{1,18}(?:_-?\d{1,18}){1,2})*)?")
_WINDOW = re.compile(r"([a-z_]+)=(-?\d{1,18}(?:_-?\d{1,18})?(?:x-?\d{1,18}(?:_-?\d{1,18})?)*)\s*")
_LABELS = re.compile(r"([bf\d?]+)_([io\d?]+)->([bf\d?]+)(?![\w.])")
_WORD = re.compile(r"[A-Za-z_][\w\-]*")

SKIPS = "skips_holes"
"""Attribute of a convolution whose kernel must skip holes rather than multiply by zeros."""

WINDOW_FIELDS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")
Lookup = Callable[[Cursor], Computation]


def parse_attribute(cursor: Cursor, name: str, lookup: Lookup) -> Any:
    """Parse the value of attribute ``name``; ``lookup`` parses a reference to a computation."""
    start = cursor.pos
    match KINDS.get(name):
        case "ints":
            return _list(cursor, name, lambda c: c.integer(f"attribute `{name}`"))
        case "int":
            return cursor.integer(f"attribute `{name}`")
        case "float":
            if (number := cursor.match(_NUMBER)) is None:
                cursor.fail(f"attribute `{name}` is not a number", f"found {cursor.found()}")
            return float(number.group())
        case "bool":
            return _bool(cursor, name)
        case "word":
            if (word := cursor.match(_WORD)) is None:
                cursor.fail(f"attribute `{name}` is not a word", f"found {cursor.found()}")
            return word.group()
        case "string":
            return cursor.string(f"attribute `{name}`")
        case "computation":
            return lookup(cursor)
        case "computations":
            return _list(cursor, name, lookup)
        case "window":
            return _window(cursor)
        case "labels":
            return _labels(cursor)
        case "slices":
            return _list(cursor, name, _slice)
        case "pads":
            if (pads := cursor.match(_PADS)) is None:
                cursor.fail("padding is not like `0_1x2_3_1`", f"found {cursor.found()}")
            parts = [tuple(map(int, p.split("_"))) for p in pads.group().split("x") if p]
            return tuple(PadDim(*p) for p in parts)
        case _:
            text = cursor.raw_value()
            if not text:
                cursor.fail(f"attribute `{name}` has no value", at=start)
            return Raw(text)


def _list(cursor: Cursor, name: str, item: Callable[[Cursor], Any]) -> tuple[Any, ...]:
    cursor.expect("{", f"after `{name}=`")
    items: list[Any] = []
    while not cursor.take("}"):
        if items:
            cursor.expect(",", f"between the values of `{name}`")
        items.append(item(cursor))
    return tuple(items)


def _bool(cursor: Cursor, name: str) -> bool:
    for word, value in (("true", True), ("false", False)):
        if cursor.at(word):
            cursor.take(word)
            return value
    cursor.fail(f"attribute `{name}` is neither true nor false", f"found {cursor.found()}")


def _slice(cursor: Cursor) -> SliceDim:
    if (found := cursor.match(_SLICE)) is None:
        cursor.fail("a slice is not like `[0:8]` or `[0:8:2]`", f"found {cursor.found()}")
    return SliceDim(int(found.group(1)), int(found.group(2)), int(found.group(3) or 1))


def _window(cursor: Cursor) -> Window:
    start = cursor.pos
    cursor.expect("{", "after `window=`")
    rows: dict[str, list[list[int]]] = {}
    while not cursor.take("}"):
        found = cursor.match(_WINDOW)
        if found is None or found.group(1) not in WINDOW_FIELDS:
            fields = ", ".join(WINDOW_FIELDS)
            cursor.fail("window is not readable", f"found {cursor.found()}; fields are {fields}")
        rows[found.group(1)] = [list(map(int, p.split("_"))) for p in found.group(2).split("x")]
    rank = len(rows.get("size", ()))
    if any(v < 0 for values in rows.get("rhs_reversal", ()) for v in values):
        cursor.fail("window field `rhs_reversal` is below 0", at=start)
    for field, values in rows.items():
        if len(values) != rank or any(len(v) != (2 if field == "pad" else 1) for v in values):
            cursor.fail(
                f"window field `{field}` does not fit", f"size has {rank} numbers", at=start
            )

    def get(field: str, d: int, part: int, default: int) -> int:
        return rows[field][d][part] if field in rows else default

    return tuple(
        WindowDim(
            size=get("size", d, 0, 1),
            stride=get("stride", d, 0, 1),
            pad_low=get("pad", d, 0, 0),
            pad_high=get("pad", d, 1, 0),
            lhs_dilate=get("lhs_dilate", d, 0, 1),
            rhs_dilate=get("rhs_dilate", d, 0, 1),
            reversal=bool(get("rhs_reversal", d, 0, 0)),
        )
        for d in range(rank)
    )


def _labels(cursor: Cursor) -> ConvLabels | Raw:
    start = cursor.pos
    found = cursor.match(_LABELS)
    if found is None:
        cursor.fail("dim_labels is not like `b01f_01io->b01f`", f"found {cursor.found()}")
    if "?" in found.group():
        return Raw(found.group())
    lhs, rhs, out = found.groups()
    spatial = [str(i) for i in range(len(lhs) - 2)]
    good = all(
        sorted(part) == sorted([*spatial, *letters])
        for part, letters in ((lhs, "bf"), (rhs, "io"), (out, "bf"))
    )
    if not good:
        why = "each part must have its two letters and the spatial digits, each once"
        cursor.fail(f"dim_labels `{found.group()}` is not readable", why, at=start)
    return ConvLabels(
        lhs_batch=lhs.index("b"),
        lhs_feature=lhs.index("f"),
        lhs_spatial=tuple(map(lhs.index, spatial)),
        rhs_input=rhs.index("i"),
        rhs_output=rhs.index("o"),
        rhs_spatial=tuple(map(rhs.index, spatial)),
        out_batch=out.index("b"),
        out_feature=out.index("f"),
        out_spatial=tuple(map(out.index, spatial)),
    )


def show_attribute(name: str, value: Any, names: Mapping[Computation, str] | None = None) -> str:
    """Return ``name=value``. ``names`` gives the computations' names; by default their own."""

    def of(c: Computation) -> str:
        return c.name if names is None else names[c]

    match value:
        case Raw(text=text):
            shown = text
        case bool():
            shown = "true" if value else "false"
        case int():
            shown = str(value)
        case float():
            shown = repr(value).removesuffix(".0")
        case str():
            shown = f'"{value}"' if KINDS.get(name) == "string" else value
        case Computation():
            shown = of(value)
        case ConvLabels():
            shown = show_labels(value)
        case tuple() if name == "window":
            shown = show_window(value)
        case tuple() if name == "padding":
            shown = "x".join(_show_pad(p) for p in value)
        case tuple():
            items = [_show_item(v) if not isinstance(v, Computation) else of(v) for v in value]
            shown = "{" + ("," if KINDS.get(name) == "ints" else ", ").join(items) + "}"
        case _:
            raise TypeError(f"attribute {name} has a value of type {type(value).__name__}")
    return f"{name}={shown}"


def _show_item(value: Any) -> str:
    if isinstance(value, SliceDim):
        step = "" if value.stride == 1 else f":{value.stride}"
        return f"[{value.start}:{value.limit}{step}]"
    return str(value)


def _show_pad(p: PadDim) -> str:
    return f"{p.low}_{p.high}" + (f"_{p.interior}" if p.interior else "")


def show_window(window: Window) -> str:
    """Return text such as ``{size=3x3 stride=2x2 pad=0_1x0_1}``, without fields that have their
    default value in every dimension."""
    columns: dict[str, list[str]] = {"size": [str(w.size) for w in window]} if window else {}
    if any(w.stride != 1 for w in window):
        columns["stride"] = [str(w.stride) for w in window]
    if any(w.pad_low or w.pad_high for w in window):
        columns["pad"] = [f"{w.pad_low}_{w.pad_high}" for w in window]
    if any(w.lhs_dilate != 1 for w in window):
        columns["lhs_dilate"] = [str(w.lhs_dilate) for w in window]
    if any(w.rhs_dilate != 1 for w in window):
        columns["rhs_dilate"] = [str(w.rhs_dilate) for w in window]
    if any(w.reversal for w in window):
        columns["rhs_reversal"] = [str(int(w.reversal)) for w in window]
    return "{" + " ".join(f"{k}={'x'.join(v)}" for k, v in columns.items()) + "}"


def show_labels(labels: ConvLabels) -> str:
    """Return text such as ``b01f_01io->b01f``."""

    def part(first: tuple[int, str], second: tuple[int, str], spatial: tuple[int, ...]) -> str:
        at = dict([first, second, *((p, str(i)) for i, p in enumerate(spatial))])
        return "".join(at[i] for i in range(len(at)))

    lhs = part((labels.lhs_batch, "b"), (labels.lhs_feature, "f"), labels.lhs_spatial)
    rhs = part((labels.rhs_input, "i"), (labels.rhs_output, "o"), labels.rhs_spatial)
    out = part((labels.out_batch, "b"), (labels.out_feature, "f"), labels.out_spatial)
    return f"{lhs}_{rhs}->{out}"
