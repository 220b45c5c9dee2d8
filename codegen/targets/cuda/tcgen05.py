"""Tensor memory in PTX: ``tcgen05``, by inline assembly.

Descriptors are those of the PTX ISA, "tcgen05 instruction descriptor" and "shared memory
descriptor" ("TensorCore 5th Generation Family Instructions").
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ....ir.dtypes import BY_NAME, bf16, f16, f32, s8, s32
from ....ir.errors import UnsupportedError
from ....ir.loop.build import as_int
from ....ir.loop.intrinsics import TABLE, WARP
from ....ir.loop.nodes import Intrinsic, Region
from ....ir.loop.tensor_memory import LANES, TensorMatrix
from ....ir.loop.warpgroups import descriptors_of
from ...emit.expr import Emitter
from ...emit.llvm.core import IRValue
from .assembly import assembly, assembly_result, names, register, shared_address, store_words
from .warpgroup import SharedFields, describe_shared, update

_E4M3, _E5M2 = BY_NAME["f8e4m3fn"], BY_NAME["f8e5m2"]
_KINDS = MappingProxyType(
    {
        f16: ("f16", 0),
        bf16: ("f16", 1),
        f32: ("tf32", 2),
        s8: ("i8", 1),
        _E4M3: ("f8f6f4", 0),
        _E5M2: ("f8f6f4", 1),
    }
)
"""The kind of a product by the type of an operand, and what its descriptor calls that type."""
_SUMS = MappingProxyType({f32: 1, s32: 2})
_MODES: Mapping[int, int] = MappingProxyType({128: 2, 64: 4, 32: 6})
_FIELDS = SharedFields(_MODES, 61, 1 << 46)


def instruction_descriptor(x: TensorMatrix, turned: tuple[int, int]) -> int:
    """Return the descriptor of a product; ``turned`` operands have k outermost."""
    a, b = (_KINDS[t][1] for t in x.types)
    types = _SUMS[x.sums] << 4 | a << 7 | b << 10
    return types | turned[0] << 15 | turned[1] << 16 | x.n // 8 << 17 | x.m // 16 << 24


def emit_tensor(em: Emitter, s: Intrinsic) -> None:
    """Emit an intrinsic of tensor memory."""
    if TABLE[s.name].product is not None:
        _product(em, s)
        return
    match s.name.split("."):
        case ["tensor_alloc"]:
            _alloc(em, s)
        case ["tensor_free"]:
            code = f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 $0, {s.args[0]};"
            assembly(em, code, register(em, s.reads[0]))
        case ["tensor_commit"]:
            way = "cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
            assembly(em, f"tcgen05.commit.{way} [$0];", shared_address(em, s.writes[0]))
        case ["tensor_fence_before"]:
            assembly(em, "tcgen05.fence::before_thread_sync;")
        case ["tensor_fence_after"]:
            assembly(em, "tcgen05.fence::after_thread_sync;")
        case ["tensor_load", _]:
            _load(em, s)
        case ["tensor_wait"]:
            update(em, "tcgen05.wait::ld.sync.aligned;", s.writes[0])
        case _:
            raise UnsupportedError(f"intrinsic {s.name}", "no thread can do it by itself")


def _place(em: Emitter, column: Region, base: Region) -> IRValue:
    """Return the address of a column, in the first lane."""
    at = em.value(column.ranges[0].start)
    short = em.pure(f"trunc i64 {at.text} to i32", s32, 0, at.depth)
    first = register(em, base)
    return em.function.result(f"add i32 {first.text}, {short.text}", s32)


def _alloc(em: Emitter, s: Intrinsic) -> None:
    """Allocate columns, and let other blocks do so."""
    code = f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [$0], {s.args[0]}; "
    code += "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
    assembly(em, code, shared_address(em, s.writes[0]))


def _product(em: Emitter, s: Intrinsic) -> None:
    """Emit a product: descriptors of its operands and of itself, and whether it adds."""
    x = TABLE[s.name].product
    assert x is not None
    turned = s.args[0], s.args[1]
    flag, base, *starts = s.reads
    a, b = (
        describe_shared(em, r, d, _FIELDS)
        for r, d in zip(starts, descriptors_of(s.args), strict=True)
    )
    to, adds = _place(em, s.writes[0], base), register(em, flag)
    name = f"tcgen05.mma.cta_group::1.kind::{_KINDS[x.operands][0]}"
    head = f".reg .pred p; .reg .b32 d; mov.b32 d, {instruction_descriptor(x, turned)};"
    text = f"{{ {head} setp.ne.b32 p, $3, 0; {name} [$0], $1, $2, d, p; }}"
    assembly(em, text, to, a, b, adds)


def _load(em: Emitter, s: Intrinsic) -> None:
    """Emit a load of columns of the warp's lanes, which ``tensor_wait`` waits for."""
    call = "llvm.nvvm.read.ptx.sreg.tid.x"
    em.declare(call, "i32", [])
    thread = em.pure(f"call i32 @{call}()", s32, 0, 0)
    warp = em.pure(f"and i32 {thread.text}, {LANES - WARP}", s32, 0, 0)
    lane = em.pure(f"shl i32 {warp.text}, 16", s32, 0, 0)
    column = _place(em, *s.reads)
    at = em.function.result(f"add i32 {column.text}, {lane.text}", s32)
    to = s.writes[0]
    count = as_int(to.ranges[0].extent)
    assert count is not None
    code = f"tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {names(0, count)}, [${count}];"
    store_words(em, to, assembly_result(em, code, to.buffer.dtype, count, at), count)
