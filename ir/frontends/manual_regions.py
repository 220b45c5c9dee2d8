"""Programs that are written for all devices but for one region: the program of one device.

JAX's ``shard_map`` lowers to a region on parts of arrays, between calls that cut the parameters
and join the results (``xla.sdy.GlobalToLocalShape``, ``SPMDFullToShardShape`` and their inverses).
Where nothing else works on whole arrays, the region is what each device runs: parameters become
the parts, with the sharding that says which. Other modules stay as they are, and those calls are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ..hlo.layouts import HEADER
from ..hlo.nodes import AnyShape, HloModule, Instruction, Raw, Shape, TupleShape
from ..hlo.rewrite import assemble, make, parameter, with_entry, with_operands
from ..hlo.signatures import leaves, same_shape

INTO = frozenset({"xla.sdy.GlobalToLocalShape", "SPMDFullToShardShape"})
OUT_OF = frozenset({"xla.sdy.LocalToGlobalShape", "SPMDShardToFullShape"})
MARKS = frozenset({"Sharding", "xla.sdy.Sharding", "xla.sdy.FuncResultSharding"})
"""Custom calls that cut arrays into parts, join parts, and only say how something is cut."""

_VALUE = re.compile(r"<@([\w.]+), \[([^\]]*)\]")
_DIMENSION = re.compile(r"\{([^{}]*)\}")
_AXIS = re.compile(r'\\?"([^"\\]+)\\?"(?::\((\d+)\)(\d+))?')
_MESH = re.compile(r"([\w.]+) = #sdy\.mesh<\[([^\]]*)\]")
_SIZE = re.compile(r'\\?"([^"\\]+)\\?"=(\d+)')


def of_one_device(module: HloModule) -> HloModule:
    """Return the program of one device; the module itself if it is one, or cannot become one."""
    entry = module.entry
    parts = _parts(module)
    if not parts or any(_works_on_whole(i, parts) for i in entry.instructions):
        return module
    new: dict[Instruction, Instruction] = {}
    for i in entry.instructions:
        operands = tuple(new[o] for o in i.operands)
        if i in parts:
            shape, sharding = parts[i]
            attrs: dict[str, Any] = {"sharding": Raw(sharding)} if sharding else {}
            kept = parameter(i.attrs["number"], shape, i.name)
            new[i] = replace(kept, attrs={**i.attrs, **kept.attrs, **attrs}, metadata=i.metadata)
        elif _target(i) in INTO | OUT_OF | MARKS:
            one = not isinstance(i.shape, TupleShape)
            new[i] = operands[0] if one else make("tuple", _bundle(operands), operands)
        else:
            new[i] = _reshaped(with_operands(i, operands))
    params = tuple(new[p] for p in entry.parameters)
    done = with_entry(module, assemble(entry.name, params, new[entry.root]))
    return replace(done, attrs={k: v for k, v in done.attrs.items() if k != HEADER})


def _target(i: Instruction) -> str:
    found = i.attrs.get("custom_call_target", "") if i.opcode == "custom-call" else ""
    return str(found).strip('"')


def _parts(module: HloModule) -> dict[Instruction, tuple[Shape, str]]:
    """Return the part of each parameter that is cut, with its sharding; empty if it is not clear.

    Every call that cuts must cut parameters, each in one way; at least one must change a shape.
    """
    meshes = _meshes(module)
    found: dict[Instruction, tuple[Shape, str]] = {}
    changes = False
    for i in module.entry.instructions:
        if _target(i) not in INTO:
            continue
        shapes = leaves(i.shape)
        texts = _shardings(i, meshes)
        if len(shapes) != len(i.operands):
            return {}
        for n, (operand, shape) in enumerate(zip(i.operands, shapes, strict=True)):
            p = _source(operand)
            text = texts[n] if n < len(texts) else ""
            if p.opcode != "parameter" or not isinstance(shape, Shape):
                return {}
            if not same_shape(found.setdefault(p, (shape, text))[0], shape):
                return {}
            changes |= not same_shape(shape, p.shape)
    return found if changes else {}


def _source(i: Instruction) -> Instruction:
    while _target(i) in MARKS and len(i.operands) == 1:
        i = i.operands[0]
    return i


def _works_on_whole(i: Instruction, parts: Mapping[Instruction, tuple[Shape, str]]) -> bool:
    """True if an instruction of the entry computes on an array that devices have in parts."""
    if _target(i) in INTO | MARKS or i.opcode == "get-tuple-element":
        return False
    sources = [s for s in map(_source, i.operands) if s in parts]
    if any(not same_shape(s.shape, parts[s][0]) for s in sources):
        return True
    return i.opcode != "tuple" and any(map(_joined, i.operands))


def _joined(i: Instruction) -> bool:
    """True for what a call that joins parts gives."""
    while i.opcode == "get-tuple-element" or _target(i) in MARKS:
        i = i.operands[0]
    return _target(i) in OUT_OF


def _bundle(values: Sequence[Instruction]) -> TupleShape:
    return TupleShape(tuple(v.shape for v in values))


def _reshaped(i: Instruction) -> Instruction:
    """Return a tuple or an element of one with the shape that its operands give now."""
    shape: AnyShape = i.shape
    if i.opcode == "tuple":
        shape = _bundle(i.operands)
    elif i.opcode == "get-tuple-element":
        shape = leaves(i.operands[0].shape)[i.attrs["index"]]
    return i if shape == i.shape else replace(i, shape=shape)


def _meshes(module: HloModule) -> dict[str, dict[str, int]]:
    """Return the sizes of the axes of each mesh of Shardy, by name."""
    value = module.attrs.get("frontend_attributes")
    text = value.text if isinstance(value, Raw) else ""
    return {
        name: {axis: int(size[:9]) for axis, size in _SIZE.findall(axes)}
        for name, axes in _MESH.findall(text)
    }


def _shardings(i: Instruction, meshes: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return how the operands of a call that cuts are cut, in XLA's text; empty where unknown."""
    value = i.attrs.get("frontend_attributes")
    if isinstance(value, Raw) and "in_shardings" in value.text:
        rows = _VALUE.findall(value.text.partition("in_shardings")[2].partition("manual_axes")[0])
        return [_tiles(meshes.get(mesh, {}), dims) for mesh, dims in rows]
    marks = (o.attrs.get("sharding") for o in i.operands if _target(o) in MARKS)
    return [m.text for m in marks if isinstance(m, Raw)]


def _tiles(mesh: Mapping[str, int], dims: str) -> str:
    """``[{"d"}, {}]`` over a mesh  ->  ``{devices=[2,1]<=[2]}``; empty if an axis is cut itself."""
    used = [_AXIS.findall(d) for d in _DIMENSION.findall(dims)]
    names = [name for axes in used for name, _, _ in axes]
    if any(part or name not in mesh for axes in used for name, part, _ in axes):
        return ""
    if not names:
        return "{replicated}"
    counts = [prod(mesh[name] for name, _, _ in axes) for axes in used]
    rest = [name for name in mesh if name not in names]
    order = [list(mesh).index(name) for name in (*names, *rest)]
    others = prod(mesh[name] for name in rest)
    last = [others] if others > 1 else []
    turn = f"T({_listed(order)})" if order != sorted(order) else ""
    note = " last_tile_dim_replicate" if last else ""
    return f"{{devices=[{_listed([*counts, *last])}]<=[{_listed(mesh.values())}]{turn}{note}}}"


def _listed(numbers: Any) -> str:
    return ",".join(map(str, numbers))
