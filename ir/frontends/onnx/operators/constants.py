"""Arrays that a node makes: constants, ranges, filled ones, and random ones from a seed."""

from __future__ import annotations

from math import ceil, pi

import numpy as np

from ....arrays import Array
from ....dtypes import DType, f32, f64, s32, s64, u32, u64
from ....hlo.limits import require_bytes
from ....hlo.nodes import Shape, TupleShape
from ...lax import bounded
from ...lax.functions import softmax
from ...lax.reductions import cumulative, sum_
from ...lax.shaping import expand_dims, iota, reshape, unstack
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator
from ..nodes.tensors import sparse_array, tensor_array
from .casts import converted


@operator("Constant")
def _constant(node: Node) -> Term:
    return node.constant(_constant_value(node))


def _constant_value(node: Node) -> Array:
    """The value of whichever attribute holds it."""
    for name, attribute in node.attributes.items():
        match name:
            case "value":
                return tensor_array(attribute.t, None, node.place)
            case "sparse_value":
                return sparse_array(attribute.sparse_tensor, None, node.place)
            case "value_float":
                return np.asarray(attribute.f, np.float32)
            case "value_floats":
                return np.asarray(list(attribute.floats), np.float32)
            case "value_int":
                return np.asarray(attribute.i, np.int64)
            case "value_ints":
                return np.asarray(list(attribute.ints), np.int64)
            case "value_string" | "value_strings":
                node.unsupported("HLO has no strings", "process text before the model")
    node.malformed("it has no value")


@operator("ConstantOfShape", sized=True)
def _constant_of_shape(node: Node) -> Term:
    value = node.tensor("value")
    dims, live = node.sizes(0)
    one = node.constant(0, f32) if value is None else node.constant(value)
    if one.shape.size != 1:
        node.malformed(f"its value has {one.shape.size} elements")
    found = reshape(one, ()).like(Shape(one.dtype, _size(node, dims, one.dtype)))
    return bounded.cut(found, live)


@operator("EyeLike")
def _eye_like(node: Node) -> Term:
    x = node.input(0)
    if x.rank != 2:
        node.malformed(f"its input has rank {x.rank}, not 2")
    rows, columns = (iota(node.graph, s64, x.dims, k) for k in (0, 1))
    return (rows + node.int_("k", 0)).equals(columns).to(node.dtype("dtype", x.dtype))


@operator("Range", sized=True)
def _range(node: Node) -> Term:
    dtype = node.input(0).dtype
    start, delta = (node.known(n).reshape(()) for n in (0, 2))
    limit: float
    live: dict[int, Term] = {}
    if dtype.is_int:
        (limit,), live = node.sizes(1)
    else:
        limit = float(node.known(1).reshape(()))
    if not delta:
        node.malformed("its step is 0")
    if live and delta < 0:
        node.known(1)
    if dtype.is_float:
        count = max(ceil((float(limit) - float(start)) / float(delta)), 0)
    else:
        count = max(-((int(start) - int(limit)) // int(delta)), 0)
    wide = dtype if not dtype.is_float or dtype.bits >= 32 else f32
    numbers = iota(node.graph, wide, _size(node, [count], wide))
    if not dtype.is_float:
        found = numbers * int(delta) + int(start)
        counts = {k: (t - int(start) + (int(delta) - 1)) / int(delta) for k, t in live.items()}
        return bounded.cut(found, counts)
    return (numbers * float(delta) + float(start)).to(dtype)


def _size(node: Node, dims: list[int], dtype: DType) -> tuple[int, ...]:
    """Sizes that are none below 0 and fit into memory."""
    if any(d < 0 for d in dims):
        node.malformed(f"the sizes {dims} are not all positive")
    count = 1
    for d in dims:
        count *= d
    require_bytes(count * dtype.bytes, "the array", node.place)
    return tuple(dims)


@operator("RandomNormal", "RandomNormalLike")
def _random_normal(node: Node) -> Term:
    dims, dtype = _drawn(node)
    first, second = unstack(uniform(node, (2, *dims)))
    radius = ((1 - first).do("log") * -2).do("sqrt")
    bell = radius * (second * (2 * pi)).do("cosine")
    found = bell * node.float_("scale", 1.0) + node.float_("mean", 0.0)
    return found.to(dtype)


@operator("RandomUniform", "RandomUniformLike")
def _random_uniform(node: Node) -> Term:
    dims, dtype = _drawn(node)
    low, high = node.float_("low", 0.0), node.float_("high", 1.0)
    return (uniform(node, dims) * (high - low) + low).to(dtype)


@operator("Bernoulli")
def _bernoulli(node: Node) -> Term:
    """1 with the probability that an element gives."""
    x = node.input(0)
    drawn = uniform(node, x.dims) < x.to(f32)
    return converted(node, drawn, node.dtype("dtype", x.dtype))


@operator("Multinomial")
def _multinomial(node: Node) -> Term:
    """Numbers of classes, drawn by their probabilities, which are the softmax of a row."""
    x = node.input(0)
    upto = cumulative(softmax(x.to(f32), [1]), "add", 1)
    drawn = expand_dims(uniform(node, (x.dims[0], node.int_("sample_size", 1))), [2])
    passed = (expand_dims(upto, [1]) <= drawn).to(s64)
    number = sum_(passed, [2]).do("minimum", x.dims[1] - 1)
    return number.to(node.dtype("dtype", s32))


def _drawn(node: Node) -> tuple[tuple[int, ...], DType]:
    """The sizes and type of random numbers: of the attributes, or of the input."""
    if node.op.endswith("Like"):
        x = node.input(0)
        return x.dims, node.dtype("dtype", x.dtype)
    return _size(node, node.ints("shape") or [], f64), node.dtype("dtype", f32)


def uniform(node: Node, dims: tuple[int, ...]) -> Term:
    """Numbers in [0, 1) that the node's seed gives, the same in every call; f32.

    A node without a seed is refused: nothing here could draw other numbers at each call.
    """
    if "seed" not in node.attributes:
        node.unsupported("it has no seed", "set its attribute `seed`, or pass the numbers in")
    seed = np.asarray([node.attributes["seed"].f], np.float32).view(np.uint32)[0]
    state = node.constant(np.asarray([seed, 0], np.uint64))
    graph = node.graph
    shapes = TupleShape((Shape(u64, (2,)), Shape(u32, dims)))
    pair = graph.add("rng-bit-generator", shapes, [state.value], algorithm="rng_three_fry")
    bits = Term(graph, graph.infer("get-tuple-element", [pair], index=1))
    mantissa = bits.do("shift-right-logical", 9) | 0x3F800000
    return mantissa.to(f32, "bitcast-convert") - 1
