"""Counter-based random bits: ThreeFry and Philox, in the order in which XLA produces them.

The state is ``u64[2]`` (key, counter) for ThreeFry and ``u64[3]`` (key, 128-bit counter, low word
first) for Philox, which also takes a counter of 64 bits; the key is then its upper half.
``rng_default`` is Philox, as XLA has it on a CPU. The generators are those of Salmon et al.,
"Parallel random numbers: as easy as 1, 2, 3" (2011): ThreeFry-2x32 with 20 rounds, Philox-4x32
with 10.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...arrays import Array
from ...dtypes import to_numpy
from ...errors import UnsupportedError
from ..nodes import Instruction, Shape, TupleShape
from .values import CallEvaluator, Value

_U32, _U64 = np.uint32, np.uint64
_LOW = _U64(0xFFFFFFFF)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def rng_bit_generator(i: Instruction, args: list[Value], run: CallEvaluator) -> Value:
    """Return the new state and an array of random bits, by the instruction's ``algorithm``.

    ``UnsupportedError`` for any state but ``u64[2]`` and ``u64[3]`` and for complex results.
    """
    state = args[0]
    match i.shape:
        case TupleShape(elements=(_, Shape() as shape)):
            pass
        case _:
            raise UnsupportedError(f"random bits `{i.name}`", "the result is not (state, bits)")
    words = state.astype(_U64).reshape(-1)
    if state.dtype != _U64 or state.size not in (2, 3) or shape.dtype.kind == "complex":
        raise UnsupportedError(f"random bits `{i.name}`", "the state is not u64[2] or u64[3]")
    double = shape.dtype.bits == 64
    make = _three_fry if i.attrs.get("algorithm") == "rng_three_fry" else _philox
    counter, bits = make(words, shape.dims, double)
    out = np.asarray(bits).astype(f"u{shape.dtype.bytes}").view(to_numpy(shape.dtype))
    after = np.concatenate([words[:1], counter, words[1 + len(counter) :]])
    return after[: len(words)], out


def _rotate(x: Array, n: int) -> Array:
    return (x << _U32(n)) | (x >> _U32(32 - n))


def three_fry(x0: Array, x1: Array, key: tuple[np.uint32, np.uint32]) -> tuple[Array, Array]:
    """Apply ThreeFry-2x32-20 to blocks of two u32 words, ``x0[k]`` and ``x1[k]``."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _U32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for r in range(5):
        for n in _ROTATIONS[r % 2]:
            x0 = x0 + x1
            x1 = _rotate(x1, n) ^ x0
        x0 = x0 + keys[(r + 1) % 3]
        x1 = x1 + keys[(r + 2) % 3] + _U32(r + 1)
    return x0, x1


def _three_fry(words: Array, dims: tuple[int, ...], double: bool) -> tuple[Array, Array]:
    """Return the new counter and the bits.

    For results of at most 32 bits, the two words of a block fill two halves of one dimension.
    """
    half, axis = (dims, 0) if double else halved(dims)
    count = prod(half)
    at = (words[1] + np.arange(count, dtype=_U64)).reshape(half)
    key = (_U32(words[0] & _LOW), _U32(words[0] >> _U64(32)))
    low, high = three_fry((at & _LOW).astype(_U32), (at >> _U64(32)).astype(_U32), key)
    counter = words[1:2] + _U64(count)
    if double:
        return counter, low.astype(_U64) | (high.astype(_U64) << _U64(32))
    both = np.stack([low, high], axis + 1)
    if not dims:
        return counter, both.reshape(-1)[:1].reshape(())
    long = both.reshape(*dims[:axis], 2 * half[axis], *dims[axis + 1 :])
    return counter, long[(slice(None),) * axis + (slice(0, dims[axis]),)]


def halved(dims: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the shape with one dimension halved, rounded up, and that dimension.

    It is the first dimension of even size, else the largest.
    """
    if not dims:
        return (1,), 0
    even = [d for d, n in enumerate(dims) if n % 2 == 0]
    axis = even[0] if even else max(range(len(dims)), key=lambda d: dims[d])
    return tuple(-(-n // 2) if d == axis else n for d, n in enumerate(dims)), axis


def philox(block: list[Array], key: tuple[int, int]) -> list[Array]:
    """Apply Philox-4x32-10 to blocks of four u32 words, ``block[0][k]`` to ``block[3][k]``."""
    k0, k1 = key
    for _ in range(10):
        p0 = block[0].astype(_U64) * _U64(0xD2511F53)
        p1 = block[2].astype(_U64) * _U64(0xCD9E8D57)
        high0, high1 = (p0 >> _U64(32)).astype(_U32), (p1 >> _U64(32)).astype(_U32)
        low0, low1 = (p0 & _LOW).astype(_U32), (p1 & _LOW).astype(_U32)
        block = [high1 ^ block[1] ^ _U32(k0), low1, high0 ^ block[3] ^ _U32(k1), low0]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return block


def _philox(words: Array, dims: tuple[int, ...], double: bool) -> tuple[Array, Array]:
    """Return the new counter (128 bits, low word first) and the bits, blocks in order."""
    count = prod(dims)
    blocks = -(-count * (2 if double else 1) // 4)
    low = words[1] + np.arange(blocks, dtype=_U64)
    top = words[-1] if len(words) > 2 else words[0]  # XLA's upper half of a short state: the key
    high = top + (low < words[1]).astype(_U64)
    parts = [low & _LOW, low >> _U64(32), high & _LOW, high >> _U64(32)]
    key = int(words[0])
    out = philox([p.astype(_U32) for p in parts], (key & 0xFFFFFFFF, key >> 32))
    numbers = np.stack(out, 1).reshape(-1)
    if double:
        numbers = numbers[0::2].astype(_U64) | (numbers[1::2].astype(_U64) << _U64(32))
    after = (int(words[1]) | int(top) << 64) + blocks
    counter = np.array([after & (1 << 64) - 1, (after >> 64) & (1 << 64) - 1], _U64)
    return counter, numbers[:count].reshape(dims)
