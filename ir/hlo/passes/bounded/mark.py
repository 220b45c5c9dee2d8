"""One graph for a range of sizes: dimensions that vary between two lowerings become bounded.

A model that was lowered for a large size serves smaller ones where its graph is the same but for
the sizes, which are then bounded dimensions; ``pad_dynamic`` masks them. That the graphs are the
same is checked instruction by instruction, for each size that is to be served, so that nothing is
assumed of the front-end. A number that is a multiple of a size, or the reciprocal of one, as of a
mean, is computed from the live size; a value that depends on it in another way is refused by the
name of its instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ....arrays import Array
from ....dtypes import s32
from ....errors import UnsupportedError
from ...layouts import HEADER, entry_shapes, header
from ...live_sizes import is_whole
from ...nodes import AnyShape, Computation, HloModule, Instruction, Shape, TupleShape, WindowDim
from ...patterns import build
from ...rewrite import assemble, make, with_entry

Sizes: TypeAlias = tuple[int, ...]
"""The extents of a dimension in the large graph and in each of the small ones."""

OPAQUE = frozenset({"custom-call", "rng", "rng-bit-generator", "infeed", "recv"})


def mark(big: HloModule, small: Sequence[HloModule]) -> HloModule:
    """Return the large graph with a bounded dimension wherever one of the small graphs is smaller.

    The result computes what each of the small graphs does, for arguments of that graph's sizes.
    ``UnsupportedError`` names the instruction where a graph differs in anything else.
    """
    if not small:
        return big
    marked = _Marking(big.name).computation(big.entry, [m.entry for m in small])
    attrs = dict(big.attrs)
    if HEADER in attrs:
        shapes, result = entry_shapes(big)
        parameters = [_like(s, p.shape) for s, p in zip(shapes, marked.parameters, strict=True)]
        attrs[HEADER] = header(parameters, _like(result, marked.root.shape))
    return with_entry(replace(big, attrs=attrs), marked)


def _like(shape: AnyShape, marked: AnyShape) -> AnyShape:
    """Return a shape with the marks of another."""
    if isinstance(shape, TupleShape) and isinstance(marked, TupleShape):
        pairs = zip(shape.elements, marked.elements, strict=True)
        return TupleShape(tuple(_like(a, b) for a, b in pairs))
    if isinstance(shape, Shape) and isinstance(marked, Shape):
        return replace(shape, dynamic=marked.dynamic)
    return shape


@dataclass(frozen=True, slots=True)
class _Marking:
    """The marking of a module; computations are marked once for each set that they stand for."""

    name: str
    done: dict[tuple[Computation, ...], Computation] = field(default_factory=dict)

    def computation(self, big: Computation, small: Sequence[Computation]) -> Computation:
        """Return a computation with marks, callees first."""
        key = (big, *small)
        if key not in self.done:
            self.done[key] = self._marked(big, *small)
        return self.done[key]

    def _marked(self, *whole: Computation) -> Computation:
        big, *small = (assemble(c.name, c.parameters, c.root) for c in whole)  # what is needed
        rows = list(zip(big.instructions, *(c.instructions for c in small), strict=False))
        rows.sort(key=lambda r: r[0].opcode != "parameter")  # sizes are known from there on
        if any(len(c.instructions) != len(big.instructions) for c in small):
            at = next((r for r in rows if len({i.opcode for i in r}) > 1), rows[-1])
            self.refuse(at[0], "from there on the graph is another one for other sizes")
        places = [{i: n for n, i in enumerate(c.instructions)} for c in (big, *small)]
        new: dict[Instruction, Instruction] = {}
        extents: dict[tuple[Instruction, int], Sizes] = {}
        for row in rows:
            pairs = zip(places, row, strict=True)
            if len({tuple(place[o] for o in i.operands) for place, i in pairs}) > 1:
                self.refuse(row[0], "it has other operands for other sizes")
            if (number := _number_of(row, extents)) is not None:
                new[row[0]] = number
                continue
            made = self._instruction(row, new)
            for d in _fresh(row[0], made):
                made = self._sized(made, d, _extents(row, d), extents)
            new[row[0]] = made
            if isinstance(made.shape, Shape):
                extents |= {(made, d): _extents(row, d) for d in made.shape.bounded}
        return assemble(big.name, [new[p] for p in big.parameters], new[big.root])

    def _instruction(
        self, row: Sequence[Instruction], new: Mapping[Instruction, Instruction]
    ) -> Instruction:
        """Return an instruction of the large graph with marks; others of ``row`` are its twins."""
        i = row[0]
        if len({x.opcode for x in row}) > 1:
            self.refuse(i, "it is another operation for other sizes")
        if any(x.attrs.keys() != i.attrs.keys() for x in row):
            self.refuse(i, "it has other attributes for other sizes")
        shape = self._shape(i, [x.shape for x in row])
        if i.opcode in OPAQUE and shape is not i.shape:
            self.refuse(i, "its result has a size that varies")
        attrs = {name: self._attribute(row, name) for name in i.attrs}
        operands = tuple(new[o] for o in i.operands)
        return Instruction(i.name, i.opcode, shape, operands, attrs, i.metadata)

    def _sized(
        self,
        x: Instruction,
        d: int,
        wanted: Sizes,
        extents: Mapping[tuple[Instruction, int], Sizes],
    ) -> Instruction:
        """Give a dimension that comes from no operand the live size of another one."""
        source = next((place for place, sizes in extents.items() if sizes == wanted), None)
        if source is None:
            self.refuse(x, f"its size {wanted[0]} is that of no argument")
        size = make("get-dimension-size", Shape(s32), (source[0],), dimensions=(source[1],))
        marks = tuple(m or k == d for k, m in enumerate(x.array.marks))
        shape = replace(x.array, dynamic=marks)
        return make("set-dimension-size", shape, (x, size), dimensions=(d,))

    def _shape(self, i: Instruction, shapes: Sequence[AnyShape]) -> AnyShape:
        """Return the large shape with marks where a small one is smaller."""
        first = shapes[0]
        if isinstance(first, TupleShape):
            twins = [s.elements if isinstance(s, TupleShape) else () for s in shapes]
            if len({len(t) for t in twins}) > 1:
                self.refuse(i, "its result is another tuple for other sizes")
            found = tuple(self._shape(i, part) for part in zip(*twins, strict=True))
            same = all(a is b for a, b in zip(found, first.elements, strict=True))
            return first if same else TupleShape(found)
        if not isinstance(first, Shape):
            return first
        arrays = [s for s in shapes if isinstance(s, Shape)]
        if any(s.dtype != first.dtype or s.rank != first.rank for s in arrays):
            self.refuse(i, "its result has another type for other sizes")
        columns = list(zip(*(s.dims for s in arrays), strict=True))
        if any(max(sizes) > sizes[0] for sizes in columns):
            self.refuse(i, "it is larger for smaller sizes")
        if any(first.dynamic):
            self.refuse(i, "it has bounded sizes already")
        marks = tuple(min(sizes) < sizes[0] for sizes in columns)
        return replace(first, dynamic=marks) if any(marks) else first

    def _attribute(self, row: Sequence[Instruction], name: str) -> Any:
        """Return an attribute of the large graph, if those of the small ones mean the same."""
        i, value = row[0], row[0].attrs[name]
        values = [x.attrs[name] for x in row]
        if isinstance(value, Computation):
            return self.computation(value, values[1:])
        if isinstance(value, tuple) and value and isinstance(value[0], Computation):
            return tuple(self.computation(c, t) for c, *t in zip(*values, strict=True))
        same = SAME.get(name)
        if not all(same(i, x) if same else _equal(value, x.attrs[name]) for x in row[1:]):
            self.refuse(i, f"its {name} depends on the size")
        return value

    def refuse(self, i: Instruction, why: str) -> NoReturn:
        """Raise the error that names an instruction."""
        raise UnsupportedError(
            f"the sizes of {self.name} cannot be padded to those of a bucket",
            f"{i.opcode} `{i.name}`: {why}",
            hint='rule="exact" compiles each size',
        )


def _number_of(
    row: Sequence[Instruction], extents: Mapping[tuple[Instruction, int], Sizes]
) -> Instruction | None:
    """Return a constant of one number as computed from the live size that it follows.

    None if it is the same for all sizes, or follows none of them.
    """
    values = [v for x in row if (v := _number(x)) is not None]
    if len(values) < len(row) or len({v.dtype for v in values}) > 1:
        return None
    if all(v == values[0] for v in values):
        return None
    for (source, d), sizes in extents.items():
        for inverse in (False, True):
            factor = _factor(values, sizes, inverse)
            if factor:
                size = make("get-dimension-size", Shape(s32), (source,), dimensions=(d,))
                return _computed(row[0].array, size, factor, inverse)
    return None


def _number(x: Instruction) -> Array | None:
    """Return the one number of a constant, as an array of rank 0; None for all else."""
    value = x.attrs["literal"] if x.opcode == "constant" else None
    if not isinstance(value, np.ndarray) or value.size != 1 or value.dtype.kind not in "iuf":
        return None
    return value.reshape(())


def _factor(values: Sequence[Array], sizes: Sizes, inverse: bool) -> int:
    """Return n where values are n times the sizes, or their reciprocals; 0 if they are not."""
    dtype = values[0].dtype
    if inverse and dtype.kind != "f":
        return 0
    with np.errstate(all="ignore"):
        ratio = (1 / float(values[0]) if inverse else float(values[0])) / max(sizes[0], 1)
    if not 1 <= ratio < 1 << 31:
        return 0
    factor = round(ratio)
    if factor * max(sizes) >= 1 << 31:
        return 0
    expected = [dtype.type(factor * n) for n in sizes]
    if inverse:
        expected = [dtype.type(1) / e if e else e for e in expected]
    return factor if all(a == b for a, b in zip(values, expected, strict=True)) else 0


def _computed(like: Shape, size: Instruction, factor: int, inverse: bool) -> Instruction:
    """Return ``factor`` times a size, or the reciprocal of that, in the type and shape given."""
    number = build.pointwise("multiply", size, build.scalar(factor, s32))
    number = build.convert(number, like.dtype)
    if inverse:
        number = build.pointwise("divide", build.scalar(1, like.dtype), number)
    return build.broadcast(number, (), like.dims)


def _extents(row: Sequence[Instruction], d: int) -> Sizes:
    return tuple(x.array.dims[d] for x in row)


def _fresh(i: Instruction, made: Instruction) -> list[int]:
    """Return the marked dimensions of a result that come from none of its operands."""
    if not isinstance(made.shape, Shape):
        return []
    match i.opcode:
        case "iota" | "constant":
            return list(made.shape.bounded)
        case "broadcast":
            return [d for d in made.shape.bounded if d not in i.attrs.get("dimensions", ())]
        case _:
            return []


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b)


def _same_literal(i: Instruction, other: Instruction) -> bool:
    """True if a small constant is the beginning of the large one, bit by bit."""
    a, b = i.attrs["literal"], other.attrs["literal"]
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return _equal(a, b)
    part = np.ascontiguousarray(a[tuple(map(slice, b.shape))])
    return part.tobytes() == np.ascontiguousarray(b).tobytes()


def _same_slice(i: Instruction, other: Instruction) -> bool:
    """True for the same ranges, or ranges with one start that go to the end of the operand."""
    extents = zip(i.operands[0].array.dims, other.operands[0].array.dims, strict=True)
    rows = zip(i.attrs["slice"], other.attrs["slice"], extents, strict=True)
    return all(
        a == b or ((a.start, a.stride) == (b.start, b.stride) and (a.limit, b.limit) == ends)
        for a, b, ends in rows
    )


def _same_parts(name: str) -> Callable[[Instruction, Instruction], bool]:
    """Return a predicate: true for parts of one size, and where both are whole dimensions."""

    def same(i: Instruction, other: Instruction) -> bool:
        extents = zip(i.operands[0].array.dims, other.operands[0].array.dims, strict=True)
        rows = zip(i.attrs[name], other.attrs[name], extents, strict=True)
        return all(
            a == b or (is_whole(0, a, 1, m) and is_whole(0, b, 1, n)) for a, b, (m, n) in rows
        )

    return same


def _same_window(i: Instruction, other: Instruction) -> bool:
    """True for equal windows, and for those of a cumulative sum over all of a dimension."""
    extents = zip(i.operands[0].array.dims, other.operands[0].array.dims, strict=False)
    rows = zip(i.attrs["window"], other.attrs["window"], extents, strict=False)
    return len(i.attrs["window"]) == len(other.attrs["window"]) and all(
        a == b or (i.opcode == "reduce-window" and _reaches_back(a, m) and _reaches_back(b, n))
        for a, b, (m, n) in rows
    )


def _reaches_back(w: WindowDim, extent: int) -> bool:
    return w == WindowDim(extent, pad_low=extent - 1)


SAME: Mapping[str, Callable[[Instruction, Instruction], bool]] = {
    "literal": _same_literal,
    "slice": _same_slice,
    "dynamic_slice_sizes": _same_parts("dynamic_slice_sizes"),
    "slice_sizes": _same_parts("slice_sizes"),
    "window": _same_window,
}
"""Attributes that may differ for other sizes, and where they still mean the same."""
