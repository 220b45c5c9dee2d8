"""Barriers, asynchronous copies and matrix instructions of a GPU's thread, as NVPTX intrinsics."""

from __future__ import annotations

from itertools import accumulate

from ....ir.dtypes import f16, f32, s32, u32
from ....ir.errors import UnsupportedError
from ....ir.formats import is_narrow
from ....ir.loop.fragments import Matrix
from ....ir.loop.intrinsics import TABLE
from ....ir.loop.nodes import Intrinsic
from ...emit.expr import Emitter
from ...emit.llvm.core import IRValue
from .assembly import (
    assembly,
    in_space,
    names,
    register,
    shared_address,
    start_of,
    store_words,
    struct_of,
    word_type,
    words_of,
)
from .bulk import emit_bulk
from .tcgen05 import emit_tensor
from .warpgroup import emit_group_fence, emit_group_product, emit_group_wait


def emit_intrinsic(em: Emitter, s: Intrinsic) -> None:
    """Emit one intrinsic. ``UnsupportedError`` where the architecture lacks it."""
    row = TABLE.get(s.name)
    if row is None or row.lane is None:
        raise UnsupportedError(f"intrinsic {s.name}", "no thread can do it by itself")
    if not row.on(em.target.gpu):
        raise UnsupportedError(f"intrinsic {s.name} for {em.target.cpu}", f"it needs sm_{row.sm}")
    match s.name.split("."):
        case ["barrier"]:
            _call(em, "llvm.nvvm.barrier0")
        case ["warp_barrier"]:
            _call(em, "llvm.nvvm.bar.warp.sync", "i32 -1")
        case ["copy_async" | "copy_async_zfill"]:
            _copy(em, s)
        case ["commit_async"]:
            _call(em, "llvm.nvvm.cp.async.commit.group")
        case ["wait_async"]:
            _call(em, "llvm.nvvm.cp.async.wait.group", f"i32 {s.args[0]}")
        case ["ldmatrix", *how]:
            _load_matrix(em, s, how)
        case ["stmatrix", *how]:
            _store_matrix(em, s, how)
        case ["mma", shape, operands, *_] if row.matrix is not None:
            _mma(em, s, shape, operands, row.matrix)
        case ["wgmma_fence"]:
            emit_group_fence(em, s)
        case ["wgmma_commit"]:
            _call(em, "llvm.nvvm.wgmma.commit_group.sync.aligned")
        case ["wgmma_wait"]:
            emit_group_wait(em, s)
        case ["wgmma", *_]:
            emit_group_product(em, s)
        case _ if row.tensor:
            emit_tensor(em, s)
        case _:
            emit_bulk(em, s)


def _call(em: Emitter, name: str, *operands: str) -> None:
    em.declare(name, "void", [" ".join(o.split()[:-1]) for o in operands])
    em.function.write(f"call void @{name}({', '.join(operands)})")


def _copy(em: Emitter, s: Intrinsic) -> None:
    (size,) = s.args
    way = "cg" if size == 16 else "ca"  # past the first-level cache where that can be
    name = f"llvm.nvvm.cp.async.{way}.shared.global.{size}"
    operands = [
        in_space(em, start_of(em, s.writes[0]), 3),
        in_space(em, start_of(em, s.reads[0]), 1),
    ]
    if s.name == "copy_async_zfill":
        operands.append(str(register(em, s.reads[1])))
        name += ".s"
    _call(em, name, *operands)


def _load_matrix(em: Emitter, s: Intrinsic, how: list[str]) -> None:
    number, trans = how[0], ".trans" if how[1:] == ["trans"] else ""
    count = {"x1": 1, "x2": 2, "x4": 4}[number]
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.{number}{trans}.b16.p3"
    pointer = in_space(em, start_of(em, s.reads[0]), 3)
    type_ = struct_of("i32", count)
    em.declare(name, type_, ["ptr addrspace(3)"])
    result = em.function.result(f"call {type_} @{name}({pointer})", s32)
    store_words(em, s.writes[0], result, count)


def _store_matrix(em: Emitter, s: Intrinsic, how: list[str]) -> None:
    """``stmatrix`` by inline assembly: only the latest LLVM has an intrinsic for it."""
    number, trans = how[0], ".trans" if how[1:] == ["trans"] else ""
    count = int(number[1:])
    words = words_of(em, s.reads[0], s32)
    code = f"stmatrix.sync.aligned.m8n8.{number}{trans}.shared.b16 [$0], {names(1, count)};"
    assembly(em, code, shared_address(em, s.writes[0]), *words)
    em.function.forget(s.writes[0].buffer)


def _mma(em: Emitter, s: Intrinsic, shape: str, operands: str, matrix: Matrix) -> None:
    """``mma.m16n8k16.bf16.f32``: C += A B for the tiles that the 32 threads hold together."""
    sums, (a, b, c) = matrix.sums, matrix.words
    words = [*words_of(em, s.reads[1], u32), *words_of(em, s.reads[2], u32)]
    given = [*(_operand(em, w, operands) for w in words), *words_of(em, s.reads[0], sums)]
    type_ = struct_of(word_type(sums), c)
    if is_narrow(matrix.operands):
        callee = _narrow_mma(shape, _kinds(matrix), (c, a, b))
    else:
        callee = f"@llvm.nvvm.mma.{shape}.row.col.{_kinds(matrix)}"
        em.declare(callee[1:], type_, [g.type for g in given])
    call = f"call {type_} {callee}({', '.join(map(str, given))}) convergent"
    result = em.function.result(call, sums)
    store_words(em, s.writes[0], result, c)


def _narrow_mma(shape: str, kinds: str, words: tuple[int, int, int]) -> str:
    """Return a product of bytes of floats as inline assembly: LLVM 20 has no intrinsic for it."""
    c, a, b = words
    firsts = accumulate((c, a, b, c), initial=0)
    lists = [names(first, size) for first, size in zip(firsts, (c, a, b, c), strict=False)]
    text = f"mma.sync.aligned.{shape}.row.col.{kinds} {', '.join(lists)};"
    constraints = ",".join([*["=f"] * c, *["r"] * (a + b), *["f"] * c])
    return f'asm "{text}", "{constraints}"'


def _kinds(x: Matrix) -> str:
    """Return how the types of a product are named."""
    if is_narrow(x.operands):
        a, b = (str(t).removeprefix("f8").removesuffix("fn") for t in x.types)
        return f"{x.sums}.{a}.{b}.{x.sums}"
    if x.operands == f16:
        return f"{x.sums}.{x.sums}"
    return "tf32" if x.operands == f32 else str(x.operands)


def _operand(em: Emitter, word: IRValue, operands: str) -> IRValue:
    """Return a word of a matrix as the instruction takes it."""
    if operands == "f16":
        return em.pure(f"bitcast i32 {word.text} to <2 x half>", f16, 2, word.depth)
    return word
