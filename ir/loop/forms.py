"""The rows of the table of intrinsics: the forms that a call may have, and what has it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ..arrays import Array
from ..dtypes import DType
from ..gpus import Gpu
from .build import as_int
from .fragments import Matrix
from .nodes import Intrinsic, Region, Scope
from .tensor_memory import TensorMatrix
from .warpgroups import GroupMatrix

Meaning: TypeAlias = Callable[..., Array]
"""From the matrices read, then ``args``, to the matrix written, if of a wider type."""

_TILES = (Scope.WARP, Scope.WARPGROUP)


@dataclass(frozen=True, slots=True)
class Operand:
    """A box: the extents of its last dimensions, those before being 1, and the scopes it may be in.

    ``dtypes`` of None are any; ``bytes`` is the size of a box of any shape, 0 being any size.
    """

    scopes: tuple[Scope, ...]
    shape: tuple[int, ...] | None = None
    dtypes: tuple[DType, ...] | None = None
    bytes: int = 0

    def __str__(self) -> str:
        what = "|".join(map(str, self.dtypes)) if self.dtypes else "any"
        any_shape = f"{self.bytes} bytes" if self.bytes else f"{what} of any size"
        size = any_shape if self.shape is None else f"{what}{list(self.shape)}"
        return f"{size} in {' or '.join(s.value for s in self.scopes)}"

    def takes(self, r: Region) -> bool:
        """True if a region of constant extents fits."""
        extents = [as_int(x.extent) or 0 for x in r.ranges]
        b = r.buffer
        if b.scope not in self.scopes or (self.dtypes and b.dtype not in self.dtypes):
            return False
        if self.shape is None:
            return self.bytes in (0, math.prod(extents) * b.dtype.bytes)
        lead = len(extents) - len(self.shape)
        return lead >= 0 and extents == [1] * lead + list(self.shape)


@dataclass(frozen=True, slots=True)
class Signature:
    """One way to call a form. Regions of the same type where ``alike``; ``args`` of these values,
    then ``free`` ones of any value."""

    args: tuple[int, ...] = ()
    writes: tuple[Operand, ...] = ()
    reads: tuple[Operand, ...] = ()
    alike: bool = False
    free: int = 0

    def takes(self, s: Intrinsic) -> bool:
        """True if a call fits."""
        pairs = ((self.writes, s.writes), (self.reads, s.reads))
        fixed = len(self.args)
        if s.args[:fixed] != self.args or len(s.args) != fixed + self.free:
            return False
        if any(len(a) != len(b) for a, b in pairs):
            return False
        both = [(o, r) for a, b in pairs for o, r in zip(a, b, strict=True)]
        same = {r.buffer.dtype for o, r in both if not o.dtypes or len(o.dtypes) > 1}
        return all(o.takes(r) for o, r in both) and not (self.alike and len(same) > 1)


@dataclass(frozen=True, slots=True)
class Form:
    """The operands and the meaning of an intrinsic at one level.

    ``threads`` do it together: 1, the neighbors of a warp, those of several warps, ``BLOCK``,
    ``NAMED`` or ``CLUSTERED``.
    """

    signatures: tuple[Signature, ...]
    threads: int
    meaning: Meaning | None = None


@dataclass(frozen=True, slots=True)
class IntrinsicDef:
    """An intrinsic. ``sm`` is the least architecture; ``exact`` ones exist on that number alone.

    Boxes of one that ``clips`` may lie outside of global memory: nothing is there. What is
    ``tensor`` needs tensor memory, whatever the number; ``product`` is one whose sums are there.
    """

    name: str
    sm: int
    tile: Form | None = None
    lane: Form | None = None
    exact: bool = False
    matrix: Matrix | None = None
    group: GroupMatrix | None = None
    clips: bool = False
    tensor: bool = False
    product: TensorMatrix | None = None

    def on(self, gpu: Gpu) -> bool:
        """True if an architecture has it."""
        if self.tensor:
            types = () if self.product is None else self.product.types
            return gpu.tensor_columns > 0 and all(t.name in gpu.tensor_operands for t in types)
        return gpu.exact and gpu.sm == self.sm if self.exact else gpu.sm >= self.sm

    def form(self, s: Intrinsic) -> Form | None:
        """Return the form that a call is of: a tile form where an operand is spread over threads,
        or lies in tensor memory by rows and columns (flat, by columns alone)."""
        boxes = (*s.writes, *s.reads)
        rows = (len(r.ranges) > 1 for r in boxes if r.buffer.scope is Scope.TENSOR)
        tile = any(r.buffer.scope in _TILES for r in boxes) or any(rows)
        return self.tile if tile else self.lane
