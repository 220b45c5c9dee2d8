"""Bits as another type: HLO's ``bitcast-convert``, and single bits, which HLO has no array of."""

from __future__ import annotations

from collections.abc import Mapping

from ....dtypes import BY_NAME, pred
from ....hlo.nodes import Shape
from ....hlo.shape_text import UNKNOWN, show_shape
from ...lax.term import Term
from .plain import array_of, operands
from .regions import applied
from .to_hlo import Handler, OpSite, Results


def bitcast_convert(site: OpSite) -> Results:
    """The bits of each element; where widths differ, a last dimension holds the narrow ones."""
    old, new = array_of(site, 0), site.element()
    bits = {old.dtype.bits if old.dtype != pred else 1, new.dtype.bits if new.dtype != pred else 1}
    if pred in (old.dtype, new.dtype) and max(bits) > 1:
        return _joined(site, max(bits)) if old.dtype == pred else _parted(site, max(bits))
    if UNKNOWN in new.dims:
        wide, narrow = old.dtype.bits, new.dtype.bits
        dims = old.dims
        if wide > narrow:
            dims = (*dims, wide // narrow)
        elif narrow > wide:
            dims = dims[:-1]
        new = Shape(new.dtype, dims)
    return site.add("bitcast-convert", new, operands(site, 1))


def _word(site: OpSite, bits: int) -> Shape:
    if f"u{bits}" not in BY_NAME or bits < 8:
        site.refuse(f"single bits cannot make a value of {bits} bits")
    return Shape(BY_NAME[f"u{bits}"])


def _joined(site: OpSite, bits: int) -> Results:
    """``pred[.., n]``, the lowest bit first, as one value of n bits."""
    old, word = array_of(site, 0), _word(site, bits)
    if old.dims[-1:] != (bits,):
        site.fail(f"{show_shape(old)} does not hold values of {bits} bits")
    places = Term(site, site.add("iota", Shape(word.dtype, old.dims), iota_dimension=old.rank - 1))
    shifted = Term(site, operands(site, 1)[0]).to(word).do("shift-left", places)
    zero = shifted.number(0).value
    start = zero.operands[0] if zero.opcode == "broadcast" else zero
    add = applied(site, "stablehlo.or", word.dtype)
    whole = site.infer("reduce", [shifted.value, start], dimensions=(old.rank - 1,), to_apply=add)
    return Term(site, whole).to(site.element(), "bitcast-convert").value


def _parted(site: OpSite, bits: int) -> Results:
    """A value of n bits as ``pred[.., n]``, the lowest bit first."""
    word = _word(site, bits)
    value = Term(site, operands(site, 1)[0]).to(word, "bitcast-convert")
    wide = Shape(word.dtype, (*value.shape.dims, bits))
    dims = tuple(range(value.shape.rank))
    spread = Term(site, site.add("broadcast", wide, [value.value], dimensions=dims))
    places = Term(site, site.add("iota", wide, iota_dimension=len(dims)))
    return (spread.do("shift-right-logical", places) & 1).differs(0).value


TABLE: Mapping[str, Handler] = {"bitcast_convert": bitcast_convert}
"""By the operation's name in the dialects StableHLO and MHLO."""
