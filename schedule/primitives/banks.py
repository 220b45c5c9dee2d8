"""Layouts that avoid conflicts in banks of shared memory and sets of caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...ir.loop.nodes import Block, Buffer, Func, Scope
from ..cursor import BlockRef, block_of, find_block, with_buffer
from ..declare import primitive
from ..errors import Reason, ScheduleError, require
from ..legality import has_region, not_a_parameter, not_opaque

MAX_FACTOR = 1024  # elements
SWIZZLES = (2, 4, 8)


@primitive
def storage_align(
    func: Func, block: BlockRef, index: int, dim: int, factor: int, offset: int
) -> Func:
    """Pad the stride of a dimension of a block's write, to avoid conflicts of banks or cache sets.

    The stride of ``dim`` becomes the least one that is ``offset`` modulo ``factor``, in elements:
    see ``nodes.Buffer``. On a CPU an odd number of cache lines keeps what is written or read side
    by side in different sets of a cache.

    Refused:
        - an argument or a result, which the caller laid out, and a buffer in registers
        - the last dimension, whose elements are contiguous
        - a factor above 1024, an offset that is not below the factor, and a swizzled buffer

    Example:
        sch = product()
        a = sch.cache_read("C", 1, "shared")
        sch.storage_align(a, 0, 0, 8, 4)
    """
    asked = f"align dimension {dim} of write {index} of block `{block.name}`"
    buffer = _written(func, block, index, asked, _own_layout(func))
    rank = len(buffer.shape)
    if not -rank <= dim < rank or dim % max(rank, 1) == rank - 1:
        raise ScheduleError(
            asked,
            f"`{buffer}` has {rank} dimensions, and the last one's elements are contiguous",
            hint=f"dimensions 0 to {rank - 2}" if rank > 1 else "transform_layout splits one",
            nest=func,
        )
    if not 1 <= factor <= MAX_FACTOR or not 0 <= offset < factor:
        raise ScheduleError(
            asked,
            f"a stride cannot be {offset} modulo {factor}",
            hint=f"the factor is 1 to {MAX_FACTOR}, the offset 0 to factor - 1",
            nest=func,
        )
    if buffer.swizzle:
        raise ScheduleError(
            asked, f"`{buffer}` is swizzled", hint="swizzle or align, not both", nest=func
        )
    return with_buffer(func, buffer, replace(buffer, align=(dim % rank, factor, offset)))


@primitive
def swizzle(func: Func, block: BlockRef, index: int, n: int) -> Func:
    """Permute the 16-byte chunks in each row of a block's shared write.

    They stay within groups of ``n``, which is 2, 4 or 8: see ``nodes.Buffer``. 0 removes it.

    Refused:
        - a buffer that is not in shared memory: no other memory has banks
        - a buffer of one dimension, which has no rows, and an aligned one

    Example:
        sch = product()
        a = sch.cache_read("C", 1, "shared")
        sch.swizzle(a, 0, 2)
    """
    asked = f"swizzle write {index} of block `{block.name}`"
    buffer = _written(func, block, index, asked, _is_shared)
    if n not in (0, *SWIZZLES):
        have = ", ".join(map(str, SWIZZLES))
        raise ScheduleError(asked, f"chunks cannot be permuted by {n}", hint=have, nest=func)
    if n and len(buffer.shape) < 2:
        raise ScheduleError(
            asked,
            f"`{buffer}` has no rows",
            nest=func,
            hint="transform_layout with a pack splits its only dimension",
        )
    if n and buffer.align is not None:
        raise ScheduleError(
            asked, f"`{buffer}` is aligned", hint="swizzle or align, not both", nest=func
        )
    return with_buffer(func, buffer, replace(buffer, swizzle=n))


Rule = Callable[[Block, Buffer], Reason | None]


def _written(func: Func, ref: BlockRef, index: int, asked: str, allowed: Rule) -> Buffer:
    path = find_block(func, ref, asked)
    block = block_of(path)
    require(func, asked, not_opaque((path,)), has_region(block.writes, index, block, "writes"))
    buffer = block.writes[index].buffer
    require(func, asked, allowed(block, buffer))
    return buffer


def _own_layout(func: Func) -> Rule:
    def rule(block: Block, buffer: Buffer) -> Reason | None:
        if buffer.scope in (Scope.SHARED, Scope.GLOBAL):
            return not_a_parameter(func, buffer, block)
        why = f"`{buffer}` is in {buffer.scope.value} memory, which has no strides"
        return Reason(why, (block,), hint="set_scope moves it")

    return rule


def _is_shared(block: Block, buffer: Buffer) -> Reason | None:
    if buffer.scope is Scope.SHARED:
        return None
    return Reason(
        f"`{buffer}` is in {buffer.scope.value} memory; only shared memory has banks",
        (block,),
        hint="set_scope or cache_read to shared first",
    )
