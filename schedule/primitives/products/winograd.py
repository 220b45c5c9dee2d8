"""Rewriting a convolution with 3 x 3 taps as products of transformed tiles: winograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import TypeAlias

from ....ir.dtypes import f32
from ....ir.loop.affine import linear
from ....ir.loop.build import (
    add,
    both,
    floordiv,
    floormod,
    lt,
    minimum,
    mul,
    number_of,
    op,
    point,
    points,
    select,
    sub,
    var,
    zero_of,
)
from ....ir.loop.nodes import (
    AxisKind,
    Block,
    BlockAxis,
    Buffer,
    Const,
    Expr,
    Func,
    Load,
    Range,
    Region,
    Store,
    Var,
)
from ....ir.loop.notes import EXCESS_ERROR
from ....ir.loop.visit import free_vars, seq, substitute_expr
from ...cursor import BlockRef, block_of, find_block
from ...declare import primitive
from ...errors import Reason, obtain
from ...excess_error import BILLIONTH
from ...transforms import Matrix, filtering, product_on_both_sides, relative_error
from .matmul import product_of
from .rewrite import Lets, Maker, check_replaceable, digits, new_axis, replaced

TAPS = 3
SIZES = (2, 4)
Pair: TypeAlias = tuple[BlockAxis, BlockAxis]


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution's factors, and its axes by role.

    ``window`` are the two pairs of a spatial axis and the reduction axis of its taps; ``batch``,
    ``columns`` (of the result) and ``channels`` (of the data) are the others.
    """

    data: Load
    weights: Load
    store: Store
    window: tuple[Pair, ...]
    batch: tuple[BlockAxis, ...]
    columns: tuple[BlockAxis, ...]
    channels: tuple[BlockAxis, ...]


def convolution_of(block: Block) -> Convolution | None:
    """Return a block as a dense convolution of f32 with 3 x 3 taps; None for any other block.

    Strides and dilations are 1, there are no groups, and there is an axis of channels. Padding is a
    block of its own.
    """
    found = product_of(block)
    if found is None or found.roles["b"]:
        return None
    if any(e.dtype != f32 for e in (found.a, found.b, found.term)):
        return None
    turns = (found.a, found.b, found.roles["n"]), (found.b, found.a, found.roles["m"])
    for data, weights, own in turns:
        if isinstance(data, Load) and isinstance(weights, Load):
            window = _window(block, data, free_vars(weights))
            if len(window) == 2:
                return _with_roles(block, found.store, data, weights, window, own)
    return None


def _with_roles(
    block: Block,
    store: Store,
    data: Load,
    weights: Load,
    window: tuple[Pair, ...],
    own: Sequence[BlockAxis],
) -> Convolution | None:
    """Return the convolution of a window; ``own`` are the axes that its data do not have."""
    used = {a.var for pair in window for a in pair} | {a.var for a in own}
    rest = [a for a in block.axes if a.var not in used]
    columns = tuple(a for a in own if a.var in free_vars(weights))
    channels = tuple(a for a in rest if a.kind is AxisKind.REDUCE)
    if not columns or not channels:
        return None
    batch = tuple(a for a in rest if a.kind is AxisKind.SPATIAL)
    return Convolution(data, weights, store, window, batch, columns, channels)


def _window(block: Block, data: Load, of_weights: frozenset[Var]) -> tuple[Pair, ...]:
    """Return the pairs of axes that index a dimension of the data as a sum, and no other."""
    axes = {a.var: a for a in block.axes}
    uses = [v for e in data.index for v in free_vars(e)]
    pairs = []
    for e in data.index:
        form = linear(e)
        parts = [axes[v] for v in form.terms if isinstance(v, Var) and v in axes]
        if len(parts) != 2 or set(form.terms.values()) != {1} or len(form.terms) != 2:
            continue
        spatial, taps = sorted(parts, key=lambda a: a.kind is AxisKind.REDUCE)
        kinds = (spatial.kind, taps.kind) == (AxisKind.SPATIAL, AxisKind.REDUCE)
        once = uses.count(spatial.var) == uses.count(taps.var) == 1
        if kinds and once and taps.extent == TAPS and spatial.var not in of_weights:
            pairs.append((spatial, taps))
    return tuple(pairs)


@primitive
def winograd(
    func: Func, block: BlockRef, size: int
) -> tuple[Func, tuple[BlockRef, BlockRef, BlockRef, BlockRef, BlockRef]]:
    """Rewrite a convolution with 3 x 3 taps as products of transformed tiles, F(size, 3).

    ``C = conv(d, g)``  ->  ``T = tiles(d); U = G g G'; V = B' T B; M[e] += V[e] * U[e]; Y = A' M A;
    C = Y``. Returns the blocks of T, U, V, Y and the copy to C; the products M keep the name.

    Tiles of ``size`` x ``size`` outputs need (size + 2)^2 products a channel instead of
    9 * size^2: 2.25 times fewer of size 2, 4 times fewer of size 4. T has zeros where a tile
    reaches over the edge. Rounding differs from that of a direct convolution, which the note
    ``excess_error`` of M tells; an infinity or NaN spreads over its tile.

    Refused:
        - a block that is not a convolution of f32 with 3 x 3 taps, strides and dilations of 1 and
          several channels, without groups
        - a size other than 2 and 4
        - a block that shares its loops with other blocks: do this first

    Example:
        sch = convolution()
        sch.winograd("C", 2)
    """
    asked = f"rewrite block `{block.name}` as products of transformed tiles"
    path = find_block(func, block, asked)
    node = block_of(path)
    check_replaceable(func, asked, path, _valid_size(size))
    found = obtain(func, asked, convolution_of(node) or _not_a_convolution(node))
    make = _WinogradBlocks(Maker(func, asked, node), found, size)
    before = make.tiles(), make.weights(), make.input()
    after = make.output(), make.copy()
    new = replaced(func, path, (*before, make.product(), *after))
    t, u, v, y, copy = (BlockRef(b.name) for b in (*before, *after))
    return new, (t, u, v, y, copy)


def _valid_size(size: int) -> Reason | None:
    if size in SIZES:
        return None
    why = f"there are no transforms of tiles of {size} x {size} outputs"
    return Reason(why, hint=f"sizes: {', '.join(map(str, SIZES))}")


def _not_a_convolution(block: Block) -> Reason:
    return Reason(
        f"block `{block.name}` is not a dense convolution of f32 with 3 x 3 taps and strides of 1",
        (block,),
        hint="other convolutions are computed directly, or by to_matmul",
    )


@dataclass
class _WinogradBlocks:
    """Makes the blocks of the rewritten convolution, and their buffers.

    Tiles are numbered through: by the batch, then by rows and columns of tiles. Products of a tile
    are numbered too; their number is the first index.
    """

    make: Maker
    conv: Convolution
    size: int

    def __post_init__(self) -> None:
        self.side = self.size + TAPS - 1
        self.dtype = self.conv.store.buffer.dtype
        self.counts = tuple(-(-pair[0].extent // self.size) for pair in self.conv.window)
        batch = _extents(self.conv.batch)
        self.count = prod((*batch, *self.counts))
        columns, channels = _extents(self.conv.columns), _extents(self.conv.channels)
        n = self.side**2
        padded = tuple(c * self.size + TAPS - 1 for c in self.counts)
        self.made = {
            "tiles": self._buffer("tiles", (*batch, *padded, *channels)),
            "weights": self._buffer("weights", (n, *channels, *columns)),
            "input": self._buffer("input", (n, self.count, *channels)),
            "product": self._buffer("product", (n, self.count, *columns)),
            "output": self._buffer("output", (self.count, self.size, self.size, *columns)),
        }

    def _buffer(self, part: str, shape: tuple[int, ...]) -> Buffer:
        return self.make.buffer(part, shape, self.dtype)

    def tiles(self) -> Block:
        """Return ``T[n, y, x, c] = d[n, y, x, c]``, 0 beyond the last output's taps."""
        target = self.made["tiles"]
        batch, channels = _fresh(self.conv.batch), _fresh(self.conv.channels)
        at = [new_axis(name, n) for name, n in zip("yx", target.shape[len(batch) :], strict=False)]
        by = _renamed(self.conv.batch, batch) | _renamed(self.conv.channels, channels)
        guards = []
        for (own, taps), place in zip(self.conv.window, at, strict=True):
            last = own.extent + TAPS - 2
            by |= {own.var: minimum(place.var, last), taps.var: Const(0)}
            guards.append(lt(place.var, last + 1) if last + 1 < place.extent else None)
        value: Expr = self._element(self.conv.data, by)
        if (inside := both(*guards)) is not None:
            value = select(inside, value, zero_of(self.dtype))
        axes = (*batch, *at, *channels)
        index = _vars(axes)
        return self.make.new("tiles", axes, point(target, index), Store(target, index, value))

    def _element(self, load: Load, by: Mapping[Var, Expr]) -> Load:
        """Return a load with the block's axes substituted; those of extent 1 are 0."""
        units: dict[Var, Expr] = {a.var: Const(0) for a in self.make.block.axes if a.extent == 1}
        at = tuple(substitute_expr(e, units | dict(by)) for e in load.index)
        return replace(load, index=at)

    def weights(self) -> Block:
        """Return ``U[e, c, k] = (G g[c, k] G')[e]``."""
        channels, columns = _fresh(self.conv.channels), _fresh(self.conv.columns)
        by = _renamed(self.conv.channels, channels) | _renamed(self.conv.columns, columns)
        first, second = (taps.var for _, taps in self.conv.window)
        values = [
            [
                self._element(self.conv.weights, by | {first: Const(i), second: Const(j)})
                for j in range(TAPS)
            ]
            for i in range(TAPS)
        ]
        matrix = filtering(self.size, TAPS).weights
        made = self._elements("weights", (*channels, *columns), matrix, values)
        ends = [
            self._element(self.conv.weights, by | dict.fromkeys((first, second), Const(n)))
            for n in (0, TAPS - 1)
        ]
        box = tuple(map(_between, *(e.index for e in ends)))
        return replace(made, reads=(Region(self.conv.weights.buffer, box),))

    def input(self) -> Block:
        """Return ``V[e, t, c] = (B' T[tile t, c] B)[e]``."""
        tile, channels = new_axis("t", self.count), _fresh(self.conv.channels)
        source = self.made["tiles"]
        *batch, i, j = digits(tile.var, (*_extents(self.conv.batch), *self.counts))
        y, x, inner = mul(i, self.size), mul(j, self.size), _vars(channels)
        values = [
            [Load(source, (*batch, add(y, k), add(x, n), *inner)) for n in range(self.side)]
            for k in range(self.side)
        ]
        box = (*points(batch), *(Range(at, Const(self.side)) for at in (y, x)), *points(inner))
        matrix = filtering(self.size, TAPS).input
        made = self._elements("input", (tile, *channels), matrix, values)
        return replace(made, reads=(Region(source, box),))

    def _elements(
        self,
        part: str,
        axes: Sequence[BlockAxis],
        matrix: Matrix,
        values: Sequence[Sequence[Expr]],
    ) -> Block:
        """Return a block that writes ``matrix @ values @ matrix.T``, the products first."""
        target = self.made[part]
        index = _vars(axes)
        lets = Lets(self.dtype)
        results = product_on_both_sides(matrix, values, self.dtype, lets.name)
        flat = [e for row in results for e in row]
        stores = [Store(target, (Const(n), *index), e) for n, e in enumerate(flat)]
        whole = Range(Const(0), Const(len(flat)))
        region = Region(target, (whole, *points(index)))
        return self.make.new(part, axes, region, lets.around(seq(*stores)))

    def product(self) -> Block:
        """Return ``M[e, t, k] += V[e, t, c] * U[e, c, k]``."""
        number, tile = new_axis("e", self.side**2), new_axis("t", self.count)
        columns = _fresh(self.conv.columns)
        channels = _fresh(self.conv.channels, AxisKind.REDUCE)
        terms = prod(_extents(self.conv.channels))
        error = ceil(relative_error(self.size, TAPS, terms) / BILLIONTH)
        own = Load(self.made["product"], _vars((number, tile, *columns)))
        a = Load(self.made["input"], _vars((number, tile, *channels)))
        b = Load(self.made["weights"], _vars((number, *channels, *columns)))
        axes = (number, tile, *columns, *channels)
        made = self.make.updating(axes, own, op("multiply", a, b), (a, b))
        return EXCESS_ERROR.put(made, error)

    def output(self) -> Block:
        """Return ``Y[t, :, :, k] = A' M[:, t, k] A``."""
        tile, columns = new_axis("t", self.count), _fresh(self.conv.columns)
        inner = _vars(columns)
        source, target = self.made["product"], self.made["output"]
        numbers = [[Const(i * self.side + j) for j in range(self.side)] for i in range(self.side)]
        values = [[Load(source, (e, tile.var, *inner)) for e in row] for row in numbers]
        lets = Lets(self.dtype)
        matrix = filtering(self.size, TAPS).output
        results = product_on_both_sides(matrix, values, self.dtype, lets.name)
        stores = [
            Store(target, (tile.var, Const(i), Const(j), *inner), e)
            for i, row in enumerate(results)
            for j, e in enumerate(row)
        ]
        first, last = points((tile.var,)), points(inner)
        written = Region(target, (*first, *(Range(Const(0), Const(self.size)),) * 2, *last))
        body = lets.around(seq(*stores))
        made = self.make.new("output", (tile, *columns), written, body)
        every = Range(Const(0), Const(self.side**2))
        return replace(made, reads=(Region(source, (every, *first, *last)),))

    def copy(self) -> Block:
        """Return ``C[n, y, x, k] = Y[tile of (n, y, x), y % size, x % size, k]``."""
        return self.make.copying("copy", self.conv.store, self.made["output"], self._place)

    def _place(self, by: Mapping[Var, Expr]) -> tuple[Expr, ...]:
        """Return the index in Y of an element of C: its tile, and its place in the tile."""
        places = [by[spatial.var] for spatial, _ in self.conv.window]
        batch = [by[a.var] for a in self.conv.batch]
        tile = number_of(
            [*batch, *(floordiv(v, self.size) for v in places)],
            [*_extents(self.conv.batch), *self.counts],
        )
        columns = (by[a.var] for a in self.conv.columns)
        return (tile, *(floormod(v, self.size) for v in places), *columns)


def _between(a: Expr, b: Expr) -> Range:
    """Return the range from one of two indices to the other, a constant apart."""
    apart = linear(b) - linear(a)
    if apart.terms or apart.constant < 0:
        return Range(b, add(sub(a, b), 1))
    return Range(a, Const(apart.constant + 1))


def _extents(axes: Sequence[BlockAxis]) -> tuple[int, ...]:
    return tuple(a.extent for a in axes)


def _fresh(axes: Sequence[BlockAxis], kind: AxisKind = AxisKind.SPATIAL) -> tuple[BlockAxis, ...]:
    """Return axes like others for another block."""
    return tuple(BlockAxis(var(a.var.name), a.extent, kind, Const(0)) for a in axes)


def _renamed(old: Sequence[BlockAxis], new: Sequence[BlockAxis]) -> dict[Var, Expr]:
    return {a.var: b.var for a, b in zip(old, new, strict=True)}


def _vars(axes: Sequence[BlockAxis]) -> tuple[Var, ...]:
    return tuple(a.var for a in axes)
