"""Operations with regions and calls: loops, branches, reductions, sorts, functions, collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....dtypes import DType, pred, s32, u32
from ....hlo.nodes import Computation, Instruction, Raw, Shape, TokenShape, TupleShape
from ....hlo.shape_text import show_shape
from ..mlir.syntax import Dense, Dialect, MlirOp, MlirRegion, Type
from .linear import ragged_dot
from .plain import array_of, operands
from .to_hlo import Handler, OpSite, Results, fits_type, is_open


def while_(site: OpSite) -> Results:
    """The state is a tuple of the loop's values and of what its regions use from around it."""
    condition, body = site.region(0), site.region(1)
    taken, copied = site.captured(condition, body)
    state = [*site.operands, *map(site.value, taken)]
    shapes = [v.shape for v in state]
    count = len(site.operands)
    test, results = site.state(condition, "condition", shapes, taken, copied)
    test_of = site.low.done(test.finish(results))
    inner, results = site.state(body, "body", shapes, taken, copied)
    if len(results) != count:
        site.fail(f"its body returns {len(results)} values, the loop has {count}")
    kept = [inner.values[n] for n in taken]
    body_of = site.low.done(inner.finish([*results, *kept]))
    packed = site.builder.pack(state)
    loop = site.infer("while", [packed], condition=test_of, body=body_of)
    if len(state) == 1:
        return [loop][:count]
    return site.builder.unpack(loop, len(state))[:count]


def case(site: OpSite) -> Results:
    """``if`` and ``case``: each branch takes what it uses from around it."""
    if not site.op.regions:
        site.fail("it has no branches")
    choice = operands(site, 1)[0]
    if site.op.name.endswith(".if") and len(site.op.regions) != 2:
        site.fail(f"it has {len(site.op.regions)} branches, not 2")
    if array_of(site, 0).dtype != (pred if site.op.name.endswith(".if") else s32):
        site.fail(f"{array_of(site, 0).dtype} cannot choose a branch")
    branches, arguments = [], []
    for region in site.op.regions:
        taken, copied = site.captured(region)
        values = [site.value(n) for n in taken]
        shapes = [v.shape for v in values]
        builder, results = site.state(region, "branch", shapes, taken, copied)
        branches.append(site.low.done(builder.finish(results)))
        arguments.append(site.builder.pack(values))
    if array_of(site, 0).dtype == pred:
        attrs = dict(zip(("true_computation", "false_computation"), branches, strict=True))
        value = site.infer("conditional", [choice, *arguments], **attrs)
    else:
        value = site.infer("conditional", [choice, *arguments], branch_computations=tuple(branches))
    if len(site.op.result_types) == 1:
        return value
    if not isinstance(value.shape, TupleShape):
        site.fail(f"its branches return {show_shape(value.shape)}")
    return site.builder.unpack(value, len(value.shape.elements))


def reduce(site: OpSite) -> Results:
    """With a region, or with the name of an operation of two scalars."""
    if "applies" in site.op.attrs:
        reducer = applied(site, site.word("applies"), array_of(site, 0).dtype)
    else:
        reducer = site.scalars(site.region(0), "reduce")
    value = site.make("reduce", site.operands, dimensions=site.ints("dimensions"), to_apply=reducer)
    return site.results(value)


def applied(site: OpSite, name: str, dtype: DType) -> Computation:
    """The reducer ``name(a, b)`` of scalars, made once."""
    kind = Shape(dtype)
    key = (name, kind)
    if key not in site.low.reducers:
        result = MlirOp(name, ("%a", "%b"), {}, (), None, (kind,), ("%c",), site.op.place)
        end = MlirOp("stablehlo.return", ("%c",), {}, (), None, (), (), site.op.place)
        region = MlirRegion((("%a", kind), ("%b", kind)), (result, end), site.op.place)
        label = f"{name.partition('.')[2]}_{kind.dtype}"
        site.low.reducers[key] = site.scalars(region, label)
    return site.low.reducers[key]


def sort(site: OpSite) -> Results:
    """Make a ``sort`` of one or several arrays with the comparator of its region."""
    rank = array_of(site, 0).rank
    dimension = site.integer("dimension", -1)
    comparator = site.scalars(site.region(0), "compare")
    value = site.make(
        "sort",
        site.operands,
        dimensions=(dimension + rank if dimension < 0 else dimension,),
        is_stable=site.flag("is_stable"),
        to_apply=comparator,
    )
    return site.results(value)


def map_(site: OpSite) -> Results:
    """Make a ``map`` of its region over arrays."""
    body = site.scalars(site.region(0), "map")
    rank = array_of(site, 0).rank
    dims = site.ints("dimensions", tuple(range(rank)))
    return site.make("map", site.operands, dimensions=dims, to_apply=body)


def call(site: OpSite) -> Results:
    """Make a ``call`` of a function of the module."""
    return call_function(site, site.attr("callee"), site.operands)


def call_function(site: OpSite, name: Any, given: Sequence[Instruction]) -> Results:
    """The results of a function of the module."""
    function = site.low.module.functions.get(name) if isinstance(name, str) else None
    if function is None:
        site.fail(f"there is no function `{name}`")
    if len(given) != len(function.body.arguments):
        site.fail(f"`{name}` takes {len(function.body.arguments)} values, not {len(given)}")
    for value, (argument, kind) in zip(given, function.body.arguments, strict=True):
        site.check_type(value, kind, f"argument `{argument}` of `{name}`")
    shapes = [v.shape for v in given]
    known = [site.builder.known(v) for v in given] if is_open(function) else ()
    callee = site.low.function(function, shapes, site.op.place, known)
    found = site.infer("call", list(given), to_apply=callee)
    count = len(function.type.results)
    return found if count == 1 else site.builder.unpack(found, count)


_COMPOSITES: Mapping[str, Handler] = {"chlo.ragged_dot": ragged_dot}
"""Composites that are one operation here."""


def composite(site: OpSite) -> Results:
    """A composite means its decomposition, or the operation of that name."""
    name = site.op.attrs.get("name", "")
    if (known := _COMPOSITES.get(getattr(name, "name", name))) is not None:
        return known(site)
    return call_function(site, site.attr("decomposition"), site.operands)


def groups(site: OpSite, name: str = "replica_groups") -> Raw:
    """``{{0,1},{2,3}}`` of a literal of rows; -1 fills a row that is shorter."""
    value = site.attr(name)
    if not isinstance(value, Dense) or not isinstance(value.type, Shape):
        site.refuse("groups of a mesh are not read", "give the groups as lists of devices")
    dims = value.type.dims
    if len(dims) != 2 or value.type.size > 1 << 20:
        site.fail(f"`{name}` is not a list of groups")
    rows = np.reshape(site.as_ints(value, name), dims).tolist()
    shown = ("{" + ",".join(str(n) for n in row if n >= 0) + "}" for row in rows)
    return Raw("{" + ",".join(shown) + "}")


def channel(site: OpSite) -> dict[str, Any]:
    """``channel_id`` where there is one."""
    handle = site.op.attrs.get("channel_handle")
    if not isinstance(handle, Dialect):
        return {}
    number = handle.fields.get("handle", 0)
    found: dict[str, Any] = {"channel_id": int(number)} if isinstance(number, int) else {}
    if site.flag("use_global_device_ids"):
        found["use_global_device_ids"] = True
    return found


def all_reduce(site: OpSite) -> Results:
    """Also ``reduce_scatter``, ``collective_reduce`` and the older ``cross-replica-sum``."""
    name = site.op.name.partition(".")[2]
    attrs: dict[str, Any] = {"replica_groups": groups(site), **channel(site)}
    if name == "reduce_scatter":
        attrs["dimensions"] = (site.integer("scatter_dimension"),)
    if name == "cross-replica-sum":
        attrs["to_apply"] = applied(site, "stablehlo.add", array_of(site, 0).dtype)
    else:
        attrs["to_apply"] = site.scalars(site.region(0), name)
    opcode = "all-reduce" if name == "cross-replica-sum" else name.replace("_", "-")
    return site.results(site.make(opcode, site.operands, **attrs))


def all_gather(site: OpSite) -> Results:
    """Make an ``all-gather`` of each operand."""
    dimension = site.integer("all_gather_dim")
    attrs = {"replica_groups": groups(site), **channel(site), "dimensions": (dimension,)}
    return site.results(site.make("all-gather", site.operands, **attrs))


def all_to_all(site: OpSite) -> Results:
    """Over one device nothing moves. Pieces cut from one dimension and joined along another are
    exchanged along a dimension of their own, the first."""
    split, joined = site.integer("split_dimension"), site.integer("concat_dimension")
    count = site.integer("split_count")
    if any(not 0 <= d < o.array.rank for o in site.operands for d in (split, joined)):
        site.fail(f"dimensions {split} and {joined} are not those of all operands")
    if count == 1:
        return list(site.operands)
    attrs = {"replica_groups": groups(site), **channel(site)}
    if split == joined:
        made = site.make("all-to-all", site.operands, **attrs, dimensions=(split,))
        return site.results(made)
    return [_exchanged(site, o, split, joined, count, attrs) for o in site.operands]


def _exchanged(
    site: OpSite, x: Instruction, split: int, joined: int, count: int, attrs: dict[str, Any]
) -> Instruction:
    dims, rank = x.array.dims, x.array.rank
    if not (0 <= split < rank and 0 <= joined < rank and count > 0 and dims[split] % count == 0):
        site.fail(f"dimension {split} of {show_shape(x.shape)} has no {count} equal pieces")
    cut = (*dims[:split], count, dims[split] // count, *dims[split + 1 :])
    first = [split, *(d for d in range(rank + 1) if d != split)]
    pieces = _reordered(site, site.add("reshape", replace(x.array, dims=cut), [x]), first)
    moved = site.add("all-to-all", pieces.shape, [pieces], **attrs, dimensions=(0,))
    last = [*range(1, joined + 1), 0, *range(joined + 1, rank + 1)]
    whole = list(pieces.array.dims[1:])
    whole[joined] *= count
    return site.add("reshape", replace(x.array, dims=tuple(whole)), [_reordered(site, moved, last)])


def _reordered(site: OpSite, x: Instruction, order: list[int]) -> Instruction:
    shape = replace(x.array, dims=tuple(x.array.dims[d] for d in order))
    return site.add("transpose", shape, [x], dimensions=tuple(order))


def collective_permute(site: OpSite) -> Results:
    """Make a ``collective-permute``."""
    pairs = groups(site, "source_target_pairs")
    return site.make(
        "collective-permute", site.operands, source_target_pairs=pairs, **channel(site)
    )


def collective_broadcast(site: OpSite) -> Results:
    """Make a ``collective-broadcast``."""
    attrs = {"replica_groups": groups(site), **channel(site)}
    return site.results(site.make("collective-broadcast", site.operands, **attrs))


def infeed(site: OpSite) -> Results:
    """``(data.., token)``, in HLO a pair of a tuple of data and the token."""
    shapes = tuple(site.settled(n) for n in range(len(site.op.result_types)))
    data = TupleShape(shapes[:-1])
    value = site.add("infeed", TupleShape((data, TokenShape())), site.operands)
    packed, token = site.builder.unpack(value, 2)
    return [*site.builder.unpack(packed, len(data.elements)), token]


def _data_and_token(site: OpSite) -> tuple[Instruction, Instruction]:
    """Return the data to send, as one value, and the token, which comes last."""
    if not site.operands:
        site.fail("it has no token")
    return site.builder.pack(site.operands[:-1]), site.operands[-1]


def outfeed(site: OpSite) -> Results:
    """Make an ``outfeed``; several values go as a tuple."""
    packed, token = _data_and_token(site)
    return site.add("outfeed", TokenShape(), [packed, token])


def send(site: OpSite) -> Results:
    """Make a ``send`` and its ``send-done``."""
    packed, token = _data_and_token(site)
    attrs = {**channel(site), "is_host_transfer": site.flag("is_host_transfer")}
    pending = TupleShape((packed.shape, Shape(u32), TokenShape()))
    begun = site.add("send", pending, [packed, token], **attrs)
    return site.add("send-done", TokenShape(), [begun], **attrs)


def recv(site: OpSite) -> Results:
    """Make a ``recv`` and its ``recv-done``; return the data and the token."""
    shapes = tuple(site.settled(n) for n in range(len(site.op.result_types)))
    data = shapes[0] if len(shapes) == 2 else TupleShape(shapes[:-1])
    attrs = {**channel(site), "is_host_transfer": site.flag("is_host_transfer")}
    pending = TupleShape((data, Shape(u32), TokenShape()))
    begun = site.add("recv", pending, operands(site, 1), **attrs)
    done = site.add("recv-done", TupleShape((data, TokenShape())), [begun], **attrs)
    packed, token = site.builder.unpack(done, 2)
    if len(shapes) == 2:
        return [packed, token]
    return [*site.builder.unpack(packed, len(shapes) - 1), token]


def manual_computation(site: OpSite) -> Results:
    """Shardy's regions: what stands in them, between calls that cut and join arrays if it works on
    parts of them."""
    region = site.region(0)
    if len(region.arguments) != len(site.operands):
        site.fail(f"{len(site.operands)} values for {len(region.arguments)} arguments")
    kinds = [kind for _, kind in region.arguments]
    whole = all(map(fits_type, [o.shape for o in site.operands], kinds))
    values = site.operands if whole else _cut(site, kinds)
    for (name, _), value in zip(region.arguments, values, strict=True):
        site.low.define(site.builder, name, value, site.op.place)
    found = site.low.block(site.builder, region)
    if whole:
        return found
    parts = [found] if isinstance(found, Instruction) else list(found)
    shapes = tuple(site.settled(n) for n in range(len(parts)))
    attrs = {"custom_call_target": "xla.sdy.LocalToGlobalShape"}
    joined = site.add("custom-call", TupleShape(shapes), parts, **attrs)
    return site.builder.unpack(joined, len(parts))


def _cut(site: OpSite, kinds: Sequence[Type]) -> Sequence[Instruction]:
    """The parts of arrays that a device has, by the call that XLA writes for it."""
    shapes = [kind for kind in kinds if isinstance(kind, Shape)]
    if len(shapes) != len(kinds):
        site.refuse("it works on parts of what is no array", "lower the function for one device")
    attrs: dict[str, Any] = {"custom_call_target": "xla.sdy.GlobalToLocalShape"}
    if isinstance(text := site.op.attrs.get("in_shardings"), str):
        attrs["frontend_attributes"] = Raw(f"{{xla.sdy.in_shardings={text}}}")
    found = site.add("custom-call", TupleShape(tuple(shapes)), site.operands, **attrs)
    return site.builder.unpack(found, len(shapes))


TABLE: Mapping[str, Handler] = {
    "while": while_,
    "case": case,
    "if": case,
    "reduce": reduce,
    "sort": sort,
    "map": map_,
    "composite": composite,
    "all_reduce": all_reduce,
    "reduce_scatter": all_reduce,
    "collective_reduce": all_reduce,
    "cross-replica-sum": all_reduce,
    "all_gather": all_gather,
    "all_to_all": all_to_all,
    "collective_permute": collective_permute,
    "collective_broadcast": collective_broadcast,
    "infeed": infeed,
    "outfeed": outfeed,
    "send": send,
    "recv": recv,
}
"""By the operation's name in the dialects StableHLO and MHLO."""
