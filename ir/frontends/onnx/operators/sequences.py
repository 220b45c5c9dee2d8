"""Sequences and optionals: lists of arrays while the model is read, nothing when it runs."""

from __future__ import annotations

from ....dtypes import s64
from ...lax import shaping
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator
from ..nodes.types import element_type
from ..nodes.values import Sequence, Value


@operator("SequenceConstruct", sized=True)
def construct(node: Node) -> Sequence:
    """The inputs as a sequence."""
    terms = node.arrays()
    return Sequence(tuple(terms), terms[0].dtype)


@operator("SequenceEmpty")
def empty(node: Node) -> Sequence:
    """No arrays, of the type ``dtype``."""
    return Sequence((), element_type(node.int_("dtype", 1), node.place))


def _position(node: Node, n: int, length: int, last: int) -> int:
    """The place that input ``n`` gives, counted from the front; ``last`` where it is left out."""
    place = int(node.known(n).reshape(())) if node.has(n) else last
    if not -length <= place <= max(last, length - 1):
        node.malformed(f"place {place} in a sequence of {length}")
    return place + length if place < 0 else place


@operator("SequenceInsert", sized=True)
def insert(node: Node) -> Sequence:
    """The sequence with one more array, by default at its end."""
    held = node.sequence(0)
    n = len(held.elements)
    place = _position(node, 2, n, n)
    elements = (*held.elements[:place], node.input(1), *held.elements[place:])
    return Sequence(elements, node.input(1).dtype)


@operator("SequenceErase", sized=True)
def erase(node: Node) -> Sequence:
    """The sequence without one of its arrays, by default the last."""
    held = node.sequence(0)
    place = _position(node, 1, len(held.elements), len(held.elements) - 1)
    return Sequence((*held.elements[:place], *held.elements[place + 1 :]), held.dtype)


@operator("SequenceAt", sized=True)
def at(node: Node) -> Term:
    """One of the arrays."""
    held = node.sequence(0)
    return held.elements[_position(node, 1, len(held.elements), len(held.elements) - 1)]


@operator("SequenceLength", sized=True)
def length(node: Node) -> Term:
    """The number of arrays, known while the model is read."""
    return node.constant(len(node.sequence(0).elements), s64)


@operator("SplitToSequence")
def split(node: Node) -> Sequence:
    """Parts of an array along an axis: of size 1, of one size, or of the sizes that are listed."""
    x = node.input(0)
    axis = node.axis("axis", x.rank)
    n = x.dims[axis]
    if not node.has(1):
        parts = shaping.split(x, [1] * n, axis)
        keep = bool(node.int_("keepdims"))
        return Sequence(tuple(p if keep else shaping.squeeze(p, [axis]) for p in parts), x.dtype)
    sizes = node.known_ints(1)
    if not node.input(1).rank:
        (size,) = sizes
        if size <= 0:
            node.malformed(f"parts of size {size}")
        sizes = [min(size, n - k) for k in range(0, n, size)]
    if sum(sizes) != n or min(sizes, default=0) < 0:
        node.malformed(f"parts of the sizes {sizes} of a dimension of {n}")
    return Sequence(tuple(shaping.split(x, sizes, axis)), x.dtype)


@operator("ConcatFromSequence", sized=True)
def concatenate(node: Node) -> Term:
    """The arrays one after the other along an axis, or stacked along a new one."""
    held = node.sequence(0)
    if not held.elements:
        node.unsupported("the sequence is empty, so that its result has no shape")
    terms, axis = list(held.elements), node.int_("axis")
    if node.int_("new_axis"):
        return shaping.stack(terms, axis % (terms[0].rank + 1))
    return shaping.concatenate(terms, axis)


@operator("Optional", sized=True)
def optional(node: Node) -> Value:
    """The input, or nothing."""
    return node.inputs[0] if node.inputs else None


@operator("OptionalHasElement", sized=True)
def has_element(node: Node) -> Term:
    """True if the input is there."""
    return node.constant(node.has(0))


@operator("OptionalGetElement", sized=True)
def get_element(node: Node) -> Value:
    """The input, which has to be there."""
    if not node.has(0):
        node.malformed("its input is an optional without a value")
    return node.inputs[0]
