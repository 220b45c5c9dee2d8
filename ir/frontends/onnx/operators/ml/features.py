"""Features before a model: scaled, normalized, encoded, joined."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....arrays import Array
from .....dtypes import f32, from_numpy
from ....lax import indexing, reductions, shaping
from ....lax.term import Term
from ...nodes.node import Node
from ...nodes.table import operator
from .domain import DOMAIN


@operator("Binarizer", domain=DOMAIN)
def binarizer(node: Node) -> Term:
    """1 where an element is above the threshold, else 0."""
    x = node.input(0)
    return (x > node.float_("threshold", 0.0)).to(x.dtype)


@operator("Scaler", domain=DOMAIN)
def scaler(node: Node) -> Term:
    """``(x - offset) * scale``, one number for all features or one for each."""
    x = node.input(0).to(f32)
    offset = node.constant(node.floats("offset") or [0], f32)
    return (x - offset) * node.constant(node.floats("scale") or [1], f32)


@operator("Normalizer", domain=DOMAIN)
def normalizer(node: Node) -> Term:
    """Rows over their largest element, the sum of their magnitudes, or their length."""
    x = node.input(0).to(f32)
    last = [x.rank - 1]
    match node.string("norm", "MAX"):
        case "MAX":
            size = reductions.max_(x.do("abs"), last, keep=True)
        case "L1":
            size = reductions.sum_(x.do("abs"), last, keep=True)
        case "L2":
            size = reductions.sum_(x * x, last, keep=True).do("sqrt")
        case other:
            node.malformed(f"its norm is `{other}`")
    return x / size.equals(0).select(1, size)


@operator("Imputer", domain=DOMAIN)
def imputer(node: Node) -> Term:
    """Another value in place of one that stands for missing ones, which may be NaN."""
    x = node.input(0)
    values: list[Any]
    missing: float
    if x.dtype.is_float:
        values = [*(node.floats("imputed_value_floats") or [0])]
        missing = node.float_("replaced_value_float", 0)
    else:
        values = [*(node.ints("imputed_value_int64s") or [0])]
        missing = node.int_("replaced_value_int64", 0)
    gone = x.differs(x) if np.isnan(missing) else x.equals(missing)
    return gone.select(node.constant(values, x.dtype), x)


@operator("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(node: Node) -> Term:
    """A last dimension with a 1 at the place of the category, or nowhere if it is none of them."""
    if node.strings("cats_strings"):
        node.unsupported("its categories are strings", "map words to numbers before the model")
    x = node.input(0)
    wanted = node.constant(node.ints("cats_int64s") or [], x.dtype)
    return shaping.expand_dims(x, [x.rank]).equals(wanted).to(f32)


@operator("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(node: Node) -> Term:
    """The features of all inputs in one row."""
    rows = [t if t.rank > 1 else shaping.expand_dims(t, [0]) for t in node.arrays()]
    return shaping.concatenate([r.to(f32) for r in rows], 1)


def _listed(node: Node, name: str) -> Array | None:
    """The keys or values of an encoder, of whichever type they are given in."""
    if node.strings(f"{name}_strings"):
        node.unsupported(f"its {name} are strings", "map words to numbers before the model")
    if (given := node.tensor(f"{name}_tensor")) is not None:
        return given
    if (numbers := node.ints(f"{name}_int64s")) is not None:
        return np.array(numbers, np.int64)
    floats = node.floats(f"{name}_floats")
    return None if floats is None else np.array(floats, np.float32)


@operator("LabelEncoder", since=2, domain=DOMAIN)
def label_encoder(node: Node) -> Term:
    """The value of each key; a default where there is none."""
    x, keys, values = node.input(0), _listed(node, "keys"), _listed(node, "values")
    if keys is None or values is None or len(keys) != len(values):
        node.malformed("its keys and values are not as many")
    dtype = from_numpy(values.dtype)
    default = node.tensor("default_tensor")
    if default is None:
        whole = dtype.is_int
        other = node.int_("default_int64", -1) if whole else node.float_("default_float", 0)
        default = np.array(other)
    wanted, each = node.constant(keys.reshape(-1), x.dtype), shaping.expand_dims(x, [x.rank])
    hit = each.equals(wanted)
    if x.dtype.is_float:
        hit = hit | (each.differs(each) & wanted.differs(wanted))
    place = reductions.argmax(hit.to(f32), x.rank)
    found = indexing.take(node.constant(values.reshape(-1)), place, 0)
    return reductions.any_(hit, [x.rank]).select(found, node.constant(default.reshape(()), dtype))
