"""``custom_call``: what only marks a value is dropped, operations in disguise are read as such.

Anything else becomes HLO's ``custom-call`` with the attributes its text has there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....hlo.analysis.custom_calls import MARKS, PARTS
from ....hlo.nodes import Raw, Shape, TupleShape
from ....hlo.shape_text import show_shape
from ...manual_regions import INTO, OUT_OF
from ..mlir.syntax import Dictionary
from .sized_calls import CALLS, called_function, called_regions, with_listed_shapes
from .to_hlo import Handler, OpSite, Results

VERSIONS = {
    2: "API_VERSION_STATUS_RETURNING",
    3: "API_VERSION_STATUS_RETURNING_UNIFIED",
    4: "API_VERSION_TYPED_FFI",
}


def custom_call(site: OpSite) -> Results:
    """Drop a marker, read an operation in disguise, or make a ``custom-call``."""
    target = site.attr("call_target_name")
    if not isinstance(target, str):
        site.fail("attribute `call_target_name` is not a name")
    if target in MARKS and not _cuts(site, target):
        return list(site.operands[: len(site.op.result_types)])
    if target == "shape_assertion":
        return assertion(site)
    if target.startswith(("mhlo.", "chlo.")) and target in site.low.table:
        return disguised(site, str(target))
    site = with_listed_shapes(site)
    made = CALLS.get(target)
    return foreign(site, str(target)) if made is None else made(site)


def _cuts(site: OpSite, target: str) -> bool:
    """True for a mark that matters to several devices: it changes a shape, or says how one will."""
    several = site.low.module.attrs.get("mhlo.num_partitions", 1) != 1
    if several and target == "Sharding" and "mhlo.sharding" in site.op.attrs:
        return True
    for n, value in enumerate(site.operands[: len(site.op.result_types)]):
        if site.declared(n) != value.shape:
            if target not in INTO | OUT_OF:
                why = f"`{target}` changes {show_shape(value.shape)}"
                site.refuse(f"{why}: it cuts work for several devices", PARTS)
            return True
    return False


def assertion(site: OpSite) -> Results:
    """A claim about sizes: true, or the sizes of this text do not fit it."""
    known = site.builder.known(site.operands[0]) if site.operands else None
    if known is None:
        site.refuse("it claims something of sizes that do not follow from constants")
    if not bool(known.all()):
        message = str(site.op.attrs.get("error_message", "its claim about sizes is false"))
        for n, size in enumerate(site.operands[1:]):  # `{0}` and so on stand for their values
            if (value := site.builder.known(size)) is not None:
                message = message.replace(f"{{{n}}}", str(value))
        site.fail(message[:300])
    return []


def disguised(site: OpSite, name: str) -> Results:
    """An operation as a call, ``@mhlo.erf(..) {mhlo.attributes = {..}}``."""
    attrs: dict[str, Any] = {}
    for key, value in site.op.attrs.items():
        attrs.update(value if key == "mhlo.attributes" and isinstance(value, dict) else {})
    op = site.op
    inner = replace(op, name=name, attrs=attrs, regions=(*op.regions, *called_regions(site)))
    return site.low.table[name](OpSite(site.low, site.builder, inner))


def foreign(site: OpSite, target: str) -> Results:
    """A call of something outside: HLO keeps it, whoever runs it must know the target."""
    attrs: dict[str, Any] = {"custom_call_target": target.replace('"', "_")}
    if layouts := _layouts(site, "operand_layouts", [o.shape for o in site.operands]):
        shown = ", ".join(show_shape(s) for s in layouts)
        attrs["operand_layout_constraints"] = Raw("{" + shown + "}")
    version = site.integer("api_version", 1)
    if "mhlo.backend_config" in site.op.attrs:
        version = 4
    if version in VERSIONS:
        attrs["api_version"] = VERSIONS[version]
    if site.flag("has_side_effect"):
        attrs["custom_call_has_side_effect"] = True
    if config := _config(site):
        attrs["backend_config"] = Raw(config)
    if isinstance(sharding := site.op.attrs.get("mhlo.sharding"), str):
        attrs["sharding"] = Raw(sharding)
    if frontend := site.op.attrs.get("mhlo.frontend_attributes"):
        attrs["frontend_attributes"] = Raw(_strings(frontend))
    if called := [_called(site, c) for c in site.op.attrs.get("called_computations") or ()]:
        attrs["called_computations"] = tuple(called)
    shapes = [site.settled(n) for n in range(len(site.op.result_types))]
    shapes = _layouts(site, "result_layouts", shapes) or shapes
    shape = shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))
    return site.results(site.add("custom-call", shape, site.operands, **attrs))


def _called(site: OpSite, name: Any) -> Any:
    function, shapes = called_function(site, name), []
    for argument, kind in function.body.arguments:
        if not isinstance(kind, Shape):
            site.refuse(f"argument `{argument}` of `{name}` is not an array")
        shapes.append(kind)
    return site.low.function(function, shapes, site.op.place)


def _layouts(site: OpSite, name: str, shapes: list[Any]) -> list[Any]:
    """The shapes with the layouts of a list of literals, minor to major; none if none is given."""
    rows = site.op.attrs.get(name)
    if not isinstance(rows, tuple) or len(rows) != len(shapes):
        return []
    found = []
    for row, shape in zip(rows, shapes, strict=True):
        order = site.as_ints(row, name)
        if not isinstance(shape, Shape) or sorted(order) != list(range(shape.rank)):
            return []
        found.append(replace(shape, layout=order or None))
    return found


def _config(site: OpSite) -> str:
    """``backend_config`` as HLO text has it: a string in quotes, or a dictionary."""
    attrs = site.op.attrs
    value = attrs.get("mhlo.backend_config", attrs.get("backend_config"))
    if isinstance(value, Dictionary):
        return " ".join(value.text.split())
    if isinstance(value, str) and value:
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{quoted}"'
    return ""


def _strings(value: Any) -> str:
    pairs = value.items() if isinstance(value, dict) else ()
    shown = (f'{k}="{v}"' for k, v in pairs if isinstance(v, str) and '"' not in v)
    return "{" + ",".join(shown) + "}"


TABLE: Mapping[str, Handler] = {"custom_call": custom_call}
"""By the operation's name in the dialects StableHLO and MHLO."""
