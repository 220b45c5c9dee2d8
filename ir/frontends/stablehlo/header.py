"""Attributes of the whole module: devices, layouts, arguments that results may overwrite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ...hlo.layouts import HEADER
from ...hlo.layouts import header as layout_header
from ...hlo.nodes import AnyShape, Computation, Raw, Shape, TupleShape
from .mlir.syntax import Dense, MlirFunction, MlirModule

DEVICES = {"mhlo.num_replicas": "replica_count", "mhlo.num_partitions": "num_partitions"}
MESHES = "xla.sdy.meshes"
WHOLE = "mhlo.xla_entry_computation_"


def header(module: MlirModule, entry: MlirFunction, computation: Computation) -> Mapping[str, Any]:
    """The attributes of the HLO module's header."""
    found: dict[str, Any] = {}
    if (layouts := _layouts(module, entry, computation)) is not None:
        found[HEADER] = layouts
    for theirs, ours in DEVICES.items():
        number = module.attrs.get(theirs, 1)
        if isinstance(number, int) and number > 1:
            found[ours] = Raw(str(number))
    meshes = module.attrs.get(MESHES)
    if found.keys() & set(DEVICES.values()) and isinstance(meshes, dict) and meshes:
        shown = ", ".join(f"{name} = #sdy.mesh{text}" for name, text in meshes.items())
        found["frontend_attributes"] = Raw(f"{{{MESHES}={{{shown}}}}}")
    return MappingProxyType({**found, **_shared(entry)})


def _shared(entry: MlirFunction) -> dict[str, Any]:
    """Arguments whose memory results may take."""
    aliases: list[str] = []
    donors: list[str] = []
    count = len(entry.type.results)
    for n, attrs in enumerate(entry.argument_attrs[: len(entry.type.inputs)]):
        target = attrs.get("tf.aliasing_output")
        if isinstance(target, int) and 0 <= target < count:
            place = "{}" if count == 1 else f"{{{target}}}"
            aliases.append(f"{place}: ({n}, {{}}, may-alias)")
        if attrs.get("jax.buffer_donor") is True:
            donors.append(f"({n}, {{}})")
    rows = {"input_output_alias": aliases, "buffer_donor": donors}
    return {name: Raw("{ " + ", ".join(items) + " }") for name, items in rows.items() if items}


def _layouts(module: MlirModule, entry: MlirFunction, computation: Computation) -> Raw | None:
    """``entry_computation_layout`` where anything lies otherwise than row-major."""
    params = [p.shape for p in computation.parameters]
    root = computation.root.shape
    count = len(entry.type.results)
    results = list(root.elements) if count != 1 and isinstance(root, TupleShape) else [root]
    given = _placed(params, entry.argument_attrs, module.attrs.get(WHOLE + "parameter_layouts"))
    taken = _placed(results, entry.result_attrs, module.attrs.get(WHOLE + "result_layout"))
    if given == params and taken == results:
        return None
    return layout_header(given, taken[0] if count == 1 else TupleShape(tuple(taken)))


def _placed(
    shapes: Sequence[AnyShape], attrs: Sequence[Mapping[str, Any]], whole: Any
) -> list[AnyShape]:
    """Shapes in the layouts that their own attributes give, or else a list for all of them."""
    rows = whole if isinstance(whole, tuple) and len(whole) == len(shapes) else [None] * len(shapes)
    found: list[AnyShape] = []
    for n, (shape, row) in enumerate(zip(shapes, rows, strict=True)):
        mode = attrs[n].get("mhlo.layout_mode") if n < len(attrs) else None
        found.append(_with_order(shape, mode if isinstance(mode, str) else row))
    return found


def _with_order(shape: AnyShape, said: Any) -> AnyShape:
    """``{0,1}`` or ``dense<[0, 1]>``: the dimensions, the fastest first."""
    words: Sequence[str] = ()
    match said:
        case str() if said.startswith("{"):
            words = said.strip("{}").partition(":")[0].split(",")
        case Dense(text=text):
            words = text.strip("[] ").split(",")
        case _:
            pass
    order = [int(w) for w in words if w.strip().isdecimal() and len(w) < 4]
    if not isinstance(shape, Shape) or sorted(order) != list(range(shape.rank)):
        return shape
    plain = order == sorted(order, reverse=True)
    return shape if plain else replace(shape, layout=tuple(order))
