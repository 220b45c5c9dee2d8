"""Products: dots with any dimensions, convolutions with everything, and their gradients' forms."""

from __future__ import annotations

import math

from ..builder import ELEMENTS, Builder, Value, listed
from .pointwise import any_value
from .reductions import sides, window
from .registry import step

WORK = 1 << 18  # multiplications of one product


@step(5)
def dot(b: Builder) -> object:
    """Batch, contracted and free dimensions in any order."""
    x = any_value(b, "isfc" if b.exact else "fc")
    if x.dtype.endswith(("2", "4")) and x.kind in ("signed", "unsigned") and x.dtype[1:] in "24":
        return None
    rank = len(x.dims)
    roles = [b.pick(("free", "terms", "terms", "batch")) for _ in range(rank)]
    batch = [d for d in range(rank) if roles[d] == "batch"]
    terms = [d for d in range(rank) if roles[d] == "terms"]
    free = [d for d in range(rank) if roles[d] == "free"]
    others = [b.extent() for _ in range(b.number(0, 2))]
    labels = [("batch", d) for d in batch] + [("terms", d) for d in terms]
    labels += [("other", k) for k in range(len(others))]
    mixed = [labels[k] for k in b.shuffled(len(labels))]
    own = [k for kind, k in mixed if kind == "other"]
    ydims = tuple(others[k] if kind == "other" else x.dims[k] for kind, k in mixed)
    out = [*(x.dims[d] for d in batch), *(x.dims[d] for d in free), *(others[k] for k in own)]
    count = math.prod(x.dims[d] for d in terms)
    if math.prod(ydims) > ELEMENTS or math.prod(out) > ELEMENTS or math.prod(out) * count > WORK:
        return None
    found = b.some(lambda v: v.dtype == x.dtype and v.dims == ydims)
    y = found if found is not None and b.chance(0.5) else b.fresh(x.dtype, ydims)
    bound = x.bound * y.bound * max(count, 1) * (2 if x.kind == "complex" else 1)
    to = _result(b, x, bound)
    if to is None:
        return None
    text = (
        f"dot({x.name}, {y.name}), lhs_batch_dims={listed(batch)}, "
        f"rhs_batch_dims={listed([mixed.index(('batch', d)) for d in batch])}, "
        f"lhs_contracting_dims={listed(terms)}, "
        f"rhs_contracting_dims={listed([mixed.index(('terms', d)) for d in terms])}"
    )
    return b.emit(to, out, text, bound)


def _result(b: Builder, x: Value, bound: float) -> str | None:
    """Return the product's type: the operands', or a wider one."""
    wider = {"bf16": "f32", "f16": "f32", "s8": "s32", "u8": "u32", "s16": "s64"}
    to = wider.get(x.dtype, x.dtype) if b.chance(0.4) else x.dtype
    if b.holds(to, bound) and (b.exact or bound < 1e5):
        return to
    to = wider.get(x.dtype, "")
    return to if to and b.holds(to, bound) else None


@step(4)
def convolution(b: Builder) -> object:
    """Strides, padding, holes on both sides, groups of features or of batches."""
    x = b.some(lambda v: 2 <= len(v.dims) <= 5 and v.size > 0 and v.kind in ("float", "signed"))
    if x is None or b.chance(0.3) or x.dtype in ("s2", "s4"):
        dtype = b.pick(("f32", "f32", "bf16", "f16", "f64", "s8", "s32") if b.exact else ("f32",))
        x = b.fresh(dtype, (b.number(1, 3), *(b.number(1, 9) for _ in range(b.number(1, 3)))))
    rank = len(x.dims) - 2
    order = b.shuffled(rank + 2)  # which of x's dimensions are batch, feature, space
    batches, channels, space = x.dims[order[0]], x.dims[order[1]], [x.dims[d] for d in order[2:]]
    ws = sides(b, tuple(space), b.chance(0.4))
    out = [s.places(n) or 0 for n, s in zip(space, ws, strict=True)]
    features, parts = 1, 1
    if b.chance(0.35):
        features = b.pick([f for f in range(1, channels + 1) if channels % f == 0])
    elif b.chance(0.2):
        parts = b.pick([f for f in range(1, batches + 1) if batches % f == 0])
    each = b.number(1, 4)
    results = each * features * parts
    kernel = [channels // features, results, *(s.size for s in ws)]
    terms = kernel[0] * math.prod(s.size for s in ws)
    full = [batches // parts, results, *out]
    if math.prod(full) > ELEMENTS or math.prod(full) * terms > WORK or math.prod(kernel) > ELEMENTS:
        return None
    korder, oorder = b.shuffled(rank + 2), b.shuffled(rank + 2)
    y = b.fresh(x.dtype, [kernel[k] for k in korder])
    bound = x.bound * y.bound * max(terms, 1)
    to = _result(b, x, bound)
    if to is None:
        return None
    names = [["b", "f"], ["i", "o"], ["b", "f"]]
    for n in names:
        n.extend(map(str, range(rank)))
    xlabels = [""] * (rank + 2)
    for k, d in enumerate(order):
        xlabels[d] = names[0][k]
    labels = (
        f"{''.join(xlabels)}_{''.join(names[1][k] for k in korder)}->"
        f"{''.join(names[2][k] for k in oorder)}"
    )
    text = (
        f"convolution({x.name}, {y.name}), {window(ws)}dim_labels={labels}, "
        f"feature_group_count={features}, batch_group_count={parts}"
    )
    return b.emit(to, [full[k] for k in oorder], text, bound)
