"""Products of warp groups in PTX: ``wgmma``, which LLVM has no intrinsic for, by inline assembly.

Sums are tied operands, so that each product's follow the one before in the same registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ....ir.dtypes import s64
from ....ir.loop.intrinsics import TABLE
from ....ir.loop.nodes import Intrinsic, Region, Scope
from ....ir.loop.warpgroups import Descriptor, GroupMatrix, descriptors_of
from ...emit.expr import Emitter
from ...emit.llvm.core import IRValue
from .assembly import assembly, assembly_result, in_space, names, store_words, words_of

_KINDS: Mapping[str, str] = MappingProxyType({"f8e4m3fn": "e4m3", "f8e5m2": "e5m2", "f32": "tf32"})


@dataclass(frozen=True, slots=True)
class SharedFields:
    """How a generation of GPUs encodes descriptors of shared memory.

    ``modes`` maps the bytes of a swizzle to its code, ``at`` is the bit at which the code begins,
    ``fixed`` are bits that are always set.
    """

    modes: Mapping[int, int]
    at: int
    fixed: int = 0


_FIELDS = SharedFields(MappingProxyType({128: 1, 64: 2, 32: 3}), 62)
_FENCE = "llvm.nvvm.wgmma.fence.sync.aligned"
_UNIT = 16  # bytes that a descriptor counts in
_REACH = 1 << 18  # bytes of a block's shared memory; above stand the numbers of a cluster's blocks


def emit_group_product(em: Emitter, s: Intrinsic) -> None:
    """Emit a product: its operands' descriptors, and one instruction on all sums."""
    x = TABLE[s.name].group
    assert x is not None
    turned, shared = s.args[:2], [r for r in s.reads[1:] if r.buffer.scope is Scope.SHARED]
    found = zip(shared, descriptors_of(s.args), strict=True)
    right = [describe_shared(em, r, d, _FIELDS) for r, d in found]
    left = [] if shared[1:] else words_of(em, s.reads[1])
    kinds = ".".join(_KINDS.get(t.name, t.name) for t in x.types)
    name = f"wgmma.mma_async.sync.aligned.m{x.m}n{x.n}k{x.k}.{x.sums}.{kinds}"
    at = 2 * x.words
    operands = [names(0, x.words), *([names(at, len(left))] if left else [])]
    operands += [f"${n}" for n in range(at + len(left), at + len(left) + len(right))]
    more = "".join(f", {n}" for n in _more(x, turned[2 - len(right) :]))
    code = f"{name} {', '.join(operands)}, p{more};"
    text = f"{{ .reg .pred p; setp.ne.b32 p, 1, 0; {code} }}"
    update(em, text, s.writes[0], *left, *right)


def _more(x: GroupMatrix, turned: Sequence[int]) -> tuple[int, ...]:
    """Return the immediate operands of ``wgmma`` after its predicate.

    Products of floats have factors of 1 for A and B, elements of two bytes a flag for each operand
    in shared memory: whether k is its outermost dimension.
    """
    return (*((1, 1) if x.sums.is_float else ()), *(turned if x.operands.bytes == 2 else ()))


def emit_group_fence(em: Emitter, s: Intrinsic) -> None:
    """Emit a fence; the registers that it names get their values before it.

    LLVM would otherwise sink these values below the fence, to the product that alone uses them.
    """
    for r in s.writes:
        update(em, "", r)
    em.declare(_FENCE, "void", [])
    em.function.write(f"call void @{_FENCE}()")


def emit_group_wait(em: Emitter, s: Intrinsic) -> None:
    """Emit a wait for groups; sums that it names are read after it."""
    text = f"wgmma.wait_group.sync.aligned {s.args[0]};"
    if not s.writes:
        assembly(em, text)
    else:
        update(em, text, s.writes[0])


def update(em: Emitter, code: str, r: Region, *others: IRValue) -> None:
    """Emit code that changes the words of a box of registers in place, after ``others`` are read.

    The words are ``$0`` and so on, once as results and once as operands; ``others`` follow.
    """
    words = words_of(em, r)
    count = len(words)
    result = assembly_result(em, code, words[0].dtype, count, *words, *others, tied=count)
    store_words(em, r, result, count)


def describe_shared(em: Emitter, r: Region, d: Descriptor, how: SharedFields) -> IRValue:
    """Return the descriptor of an operand that begins at a region.

    The constant part of its place is added last, so that descriptors of a tile share the rest.
    """
    form = em.form(r.ranges[0].start)
    assert form is not None
    units = form.constant * r.buffer.dtype.bytes // _UNIT
    pointer = em.pointer(r.buffer, replace(form, constant=0))
    place = em.pure(f"ptrtoint {in_space(em, pointer, 3)} to i64", s64, 0, pointer.depth)
    near = em.pure(f"and i64 {place.text}, {_REACH - 1}", s64, 0, place.depth)
    unit = em.pure(f"lshr i64 {near.text}, 4", s64, 0, near.depth)
    fields = d.leading // _UNIT << 16 | d.stride // _UNIT << 32 | how.fixed
    fields |= how.modes[d.swizzle] << how.at
    signed = fields - (1 << 64) if fields >> 63 else fields
    base = em.pure(f"or disjoint i64 {unit.text}, {signed}", s64, 0, unit.depth)
    return em.pure(f"add i64 {base.text}, {units}", s64, 0, base.depth)
