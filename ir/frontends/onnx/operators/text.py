"""Counting n-grams of numbers; operators on strings are refused, each by its name."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ....dtypes import f32, s64
from ....hlo.limits import require_bytes
from ...lax import linear, reductions, shaping
from ...lax.term import Term
from ..nodes.node import Node
from ..nodes.table import operator


def _grams(node: Node) -> list[tuple[int, np.ndarray[tuple[int, int], np.dtype[np.int64]], int]]:
    """Lengths, the n-grams of that length, and the number of the first of them."""
    pool = np.array(node.ints("pool_int64s") or [], np.int64)
    starts = [*(node.ints("ngram_counts") or []), len(pool)]
    found, number = [], 0
    for n, (a, b) in enumerate(pairwise(starts), 1):
        rows = pool[a:b].reshape(-1, n)
        found.append((n, rows, number))
        number += len(rows)
    return found


@operator("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(node: Node) -> Term:
    """The number of times that each n-gram of the pool occurs in a row, with up to so many gaps."""
    if node.strings("pool_strings"):
        node.unsupported("its n-grams are strings", "map words to numbers before the model")
    x = node.input(0)
    rows = shaping.reshape(x, (1, x.dims[-1] if x.rank else 1) if x.rank < 2 else x.dims)
    places = node.ints("ngram_indexes") or []
    size = max(places) + 1
    total = shaping.full(node.graph, 0, f32, (rows.dims[0], size))
    least, most = node.int_("min_gram_length"), node.int_("max_gram_length")
    for n, grams, first in _grams(node):
        if not least <= n <= most or not len(grams):
            continue
        skips = node.int_("max_skip_count") + 1 if n > 1 else 1
        counts = _counts(rows.to(s64), grams, skips)
        if counts is None:
            continue
        require_bytes(len(grams) * size * 4, "its n-grams", node.place)
        to = np.zeros((len(grams), size), np.float32)
        to[np.arange(len(grams)), places[first : first + len(grams)]] = 1
        total = total + linear.matmul(counts, node.constant(to))
    weights = node.floats("weights")
    mode = node.string("mode")
    if mode == "IDF":
        total = (total > 0).to(f32)
    if mode != "TF" and weights:
        total = total * node.constant(weights, f32)
    return total if x.rank > 1 else shaping.reshape(total, (size,))


def _counts(
    rows: Term, grams: np.ndarray[tuple[int, int], np.dtype[np.int64]], skips: int
) -> Term | None:
    """The counts of n-grams in each row, f32; None where rows are too short for any."""
    total: Term | None = None
    n, length = grams.shape[1], rows.dims[1]
    for skip in range(1, skips + 1):
        count = length - skip * (n - 1)
        if count <= 0:
            break
        hits: Term | None = None
        for k in range(n):
            part = shaping.slice_in_dim(rows, k * skip, k * skip + count, 1)
            wanted = shaping.literal(rows.site, grams[:, k], s64)
            same = shaping.expand_dims(part, [2]).equals(wanted)
            hits = same if hits is None else hits & same
        assert hits is not None
        found = reductions.sum_(hits.to(f32), [1])
        total = found if total is None else total + found
    return total


REFUSED = {
    "StringNormalizer": "it changes strings",
    "StringConcat": "it joins strings",
    "StringSplit": "it splits strings",
    "RegexFullMatch": "it matches strings",
}
"""By operator: the reason."""


@operator(*REFUSED)
def refuse_strings(node: Node) -> Term:
    """Refuse an operator on strings."""
    node.unsupported(REFUSED[node.op], "HLO has no strings; process text before the model")


@operator("ImageDecoder")
def refuse_files(node: Node) -> Term:
    """Refuse to decode an image file."""
    node.unsupported("it decodes an image file", "decode images before the model, as with Pillow")
