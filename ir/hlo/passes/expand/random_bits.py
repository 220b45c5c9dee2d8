"""Counter-based random bits as integer arithmetic: ThreeFry-2x32-20 and Philox-4x32-10.

The generators are those of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
Their words are arranged in an array as XLA does; ``hlo.meaning.random`` does the same in NumPy.
"""

from __future__ import annotations

from math import prod

from ....dtypes import BY_NAME, u32, u64
from ...meaning.random import halved
from ...nodes import HloModule, Instruction, Shape, SliceDim, TupleShape
from ...patterns import build
from ...rewrite import make, map_computations, rebuild

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)

Words = tuple[Instruction, ...]


def expand_random_bits(module: HloModule) -> HloModule:
    """``rng-bit-generator(state)``  ->  integer arithmetic on keys and counters"""
    return map_computations(module, lambda c: rebuild(c, _expand))


def _expand(i: Instruction) -> Instruction | None:
    if i.opcode != "rng-bit-generator":
        return None
    assert isinstance(i.shape, TupleShape)
    (state,) = i.operands
    result = i.shape.elements[1]
    assert isinstance(result, Shape)
    words = [element(state, n) for n in range(state.array.dims[0])]
    generate = _three_fry if i.attrs["algorithm"] == "rng_three_fry" else _philox
    after, bits = generate(words, result)
    kept = [build.reshape(w, (1,)) for w in (words[0], *after)]
    new = make("concatenate", state.array, kept, dimensions=(0,))
    return build.tuple_of((new, bits))


def element(x: Instruction, n: int) -> Instruction:
    """Return element ``n`` of a vector, as a scalar."""
    return build.reshape(build.part(x, n, 1), ())


def as_type(words: Instruction, result: Shape) -> Instruction:
    """Reinterpret the low bits of u32 or u64 words as elements of the result's type."""
    bits = build.convert(words, BY_NAME[f"u{result.dtype.bits}"])
    if bits.array.dtype == result.dtype:
        return bits
    return make("bitcast-convert", Shape(result.dtype, bits.array.dims), (bits,))


def _halves(x: Instruction) -> tuple[Instruction, Instruction]:
    """Return the low and the high 32 bits of u64."""
    return build.convert(x, u32), build.convert(_shifted("shift-right-logical", x, 32), u32)


def _joined(low: Instruction, high: Instruction) -> Instruction:
    """Return u64 of a low and a high half."""
    upper = _shifted("shift-left", build.convert(high, u64), 32)
    return build.pointwise("or", build.convert(low, u64), upper)


def _shifted(opcode: str, x: Instruction, by: int) -> Instruction:
    return build.pointwise(opcode, x, build.full(by, x.array.dtype, x.array.dims))


def _rotated(x: Instruction, by: int) -> Instruction:
    left = _shifted("shift-left", x, by)
    return build.pointwise("or", left, _shifted("shift-right-logical", x, 32 - by))


def _spread(scalar: Instruction, dims: tuple[int, ...]) -> Instruction:
    return build.broadcast(scalar, (), dims)


def _counted(first: Instruction, dims: tuple[int, ...]) -> Instruction:
    """Return ``first``, ``first + 1``, .. in row-major order, as u64."""
    row = build.iota(u64, (prod(dims),))
    return build.pointwise("add", _spread(first, dims), build.reshape(row, dims))


def _plus(x: Instruction, n: int) -> Instruction:
    return build.pointwise("add", x, build.scalar(n, x.array.dtype))


def _three_fry(words: list[Instruction], result: Shape) -> tuple[list[Instruction], Instruction]:
    """Return the new counter and the bits.

    For results of at most 32 bits, the two words of a block are neighbors along one dimension.
    """
    dims = result.dims
    wide = result.dtype.bits == 64
    half, axis = (dims, 0) if wide else halved(dims)
    at = _halves(_counted(words[1], half))
    low, high = three_fry(at, _halves(words[0]), half)
    after = [_plus(words[1], prod(half))]
    if wide:
        return after, as_type(_joined(low, high), result)
    split = (*half[: axis + 1], 1, *half[axis + 1 :])
    pair = tuple(build.reshape(w, split) for w in (low, high))
    shape = Shape(u32, (*split[: axis + 1], 2, *split[axis + 2 :]))
    both = make("concatenate", shape, pair, dimensions=(axis + 1,))
    long = build.reshape(both, (*half[:axis], 2 * half[axis], *half[axis + 1 :]))
    wanted = dims or (1,)
    if long.array.dims != wanted:
        cuts = tuple(SliceDim(0, n) for n in wanted)
        long = make("slice", Shape(u32, wanted), (long,), slice=cuts)
    return after, as_type(build.reshape(long, dims), result)


def three_fry(block: Words, key: Words, dims: tuple[int, ...]) -> Words:
    """Apply ThreeFry-2x32-20 to blocks of two u32 words, in arrays of ``dims``.

    Of the twenty rounds every fourth is followed by the addition of a part of the key.
    """
    parity = build.scalar(PARITY, u32)
    last = build.pointwise("xor", build.pointwise("xor", key[0], key[1]), parity)
    keys = (key[0], key[1], last)
    x, y = (build.pointwise("add", w, _spread(k, dims)) for w, k in zip(block, keys, strict=False))
    for r in range(5):
        for n in ROTATIONS[r % 2]:
            x = build.pointwise("add", x, y)
            y = build.pointwise("xor", _rotated(y, n), x)
        x = build.pointwise("add", x, _spread(keys[(r + 1) % 3], dims))
        y = build.pointwise("add", y, _spread(_plus(keys[(r + 2) % 3], r + 1), dims))
    return x, y


def _philox(words: list[Instruction], result: Shape) -> tuple[list[Instruction], Instruction]:
    """Return the new counter and the bits: four 32-bit words per block, in order."""
    wide, count = result.dtype.bits == 64, prod(result.dims)
    blocks = -(-count * (2 if wide else 1) // 4)
    upper = words[2] if len(words) > 2 else words[0]
    low = _plus(words[1], blocks)
    carry = build.convert(build.pointwise("compare", low, words[1], direction="LT"), u64)
    after = [low, build.pointwise("add", upper, carry)][: len(words) - 1]
    flat = philox_numbers(words[0], words[1], upper, blocks, wide)
    return after, as_type(build.reshape(build.part(flat, 0, count), result.dims), result)


def philox_numbers(
    key: Instruction, low: Instruction, upper: Instruction, blocks: int, wide: bool
) -> Instruction:
    """Return a vector of the numbers of ``blocks`` blocks: four u32 each or, if ``wide``, two u64.

    ``key``, ``low`` and ``upper`` are u64 scalars; the counter starts at ``low + 2**64 upper``.
    """
    dims = (blocks,)
    at = _counted(low, dims)
    carry = build.convert(build.pointwise("compare", at, _spread(low, dims), direction="LT"), u64)
    top = build.pointwise("add", _spread(upper, dims), carry)
    out = philox((*_halves(at), *_halves(top)), _halves(key), dims)
    if wide:
        out = (_joined(out[0], out[1]), _joined(out[2], out[3]))
    rows = [build.reshape(w, (blocks, 1)) for w in out]
    shape = Shape(rows[0].array.dtype, (blocks, len(rows)))
    return build.reshape(make("concatenate", shape, rows, dimensions=(1,)), (blocks * len(rows),))


def philox(block: Words, key: Words, dims: tuple[int, ...]) -> Words:
    """Apply Philox-4x32-10 to blocks of four u32 words, in arrays of ``dims``.

    Each of the ten rounds uses the next two keys of a Weyl sequence.
    """
    a, b, c, d = block
    for r in range(10):
        k0, k1 = (
            _spread(_plus(k, r * w & 0xFFFFFFFF), dims) for k, w in zip(key, WEYL, strict=True)
        )
        first, second = (build.full(m, u32, dims) for m in MULTIPLIERS)
        high, low = build.pointwise("mulhi", a, first), build.pointwise("multiply", a, first)
        upper, rest = build.pointwise("mulhi", c, second), build.pointwise("multiply", c, second)
        a, b, c, d = (
            build.pointwise("xor", build.pointwise("xor", upper, b), k0),
            rest,
            build.pointwise("xor", build.pointwise("xor", high, d), k1),
            low,
        )
    return a, b, c, d
