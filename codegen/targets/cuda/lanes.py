"""Barriers, asynchronous copies and matrix instructions of a GPU's thread, as NVPTX intrinsics."""

from __future__ import annotations

from ....ir.dtypes import DType, f16, f32, index, s32, u32
from ....ir.errors import UnsupportedError, VerifyError
from ....ir.formats import is_narrow
from ....ir.loop.fragments import Matrix
from ....ir.loop.intrinsics import TABLE
from ....ir.loop.nodes import Intrinsic, Load, Region
from ...emit.expr import Emitter
from ...emit.llvm.core import IRValue
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


def start_of(em: Emitter, r: Region) -> IRValue:
    """Return the address of a box of a flat buffer."""
    (only,) = r.ranges
    form = em.form(only.start)
    if form is None:
        raise VerifyError(f"a box of {r.buffer.name}", "it begins elsewhere in every lane")
    return em.pointer(r.buffer, form)


def in_space(em: Emitter, pointer: IRValue, space: int) -> str:
    """Return a pointer, with its type, as one of an address space."""
    text = f"addrspacecast ptr {pointer.text} to ptr addrspace({space})"
    cast = em.pure(text, index, 0, pointer.depth)
    return f"ptr addrspace({space}) {cast.text}"


def _copy(em: Emitter, s: Intrinsic) -> None:
    (size,) = s.args
    way = "cg" if size == 16 else "ca"  # past the first-level cache where that can be
    name = f"llvm.nvvm.cp.async.{way}.shared.global.{size}"
    operands = [
        in_space(em, start_of(em, s.writes[0]), 3),
        in_space(em, start_of(em, s.reads[0]), 1),
    ]
    if s.name == "copy_async_zfill":
        count = s.reads[1]
        operands.append(str(em.value(Load(count.buffer, (count.ranges[0].start,)))))
        name += ".s"
    _call(em, name, *operands)


def _words(em: Emitter, r: Region, count: int, dtype: DType) -> list[IRValue]:
    """Return the elements of a thread's own box, as ``dtype`` of as many bits."""
    start, found = r.ranges[0].start, []
    form = em.form(start)
    assert form is not None
    for k in range(count):
        at = em.offset(em.pointer(r.buffer, form), em.const(k, index), _element(dtype))
        text = f"load {_element(dtype)}, ptr {at.text}, align 4"
        found.append(em.read(text, dtype, 0, r.buffer, at, at.depth))
    return found


def _element(dtype: DType) -> str:
    return "float" if dtype == f32 else "i32"


def put_words(em: Emitter, r: Region, result: IRValue, type_: str, count: int) -> None:
    """Emit stores of the words of a struct to a box of registers."""
    start = start_of(em, r)
    element = type_.strip("{} ").split(", ")[0]
    for k in range(count):
        word = em.function.result(f"extractvalue {type_} {result.text}, {k}", s32)
        at = em.offset(start, em.const(k, index), element)
        em.function.write(f"store {element} {word.text}, ptr {at.text}, align 4")
    em.function.forget(r.buffer)


def _load_matrix(em: Emitter, s: Intrinsic, how: list[str]) -> None:
    number, trans = how[0], ".trans" if how[1:] == ["trans"] else ""
    count = {"x1": 1, "x2": 2, "x4": 4}[number]
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.{number}{trans}.b16.p3"
    pointer = in_space(em, start_of(em, s.reads[0]), 3)
    type_ = "i32" if count == 1 else f"{{ {', '.join(['i32'] * count)} }}"
    em.declare(name, type_, ["ptr addrspace(3)"])
    result = em.function.result(f"call {type_} @{name}({pointer})", s32)
    if count == 1:
        at = start_of(em, s.writes[0])
        em.function.write(f"store i32 {result.text}, ptr {at.text}, align 4")
        em.function.forget(s.writes[0].buffer)
    else:
        put_words(em, s.writes[0], result, type_, count)


def _store_matrix(em: Emitter, s: Intrinsic, how: list[str]) -> None:
    """``stmatrix`` by inline assembly: only the latest LLVM has an intrinsic for it."""
    number, trans = how[0], ".trans" if how[1:] == ["trans"] else ""
    count, own = int(number[1:]), s.reads[0]
    start, words = start_of(em, own), []
    for k in range(count):
        at = em.offset(start, em.const(k, index), "i32")
        words.append(em.read(f"load i32, ptr {at.text}, align 4", s32, 0, own.buffer, at, at.depth))
    row = in_space(em, start_of(em, s.writes[0]), 3)
    held = ", ".join(f"${n + 1}" for n in range(count))
    text = f"stmatrix.sync.aligned.m8n8.{number}{trans}.shared.b16 [$0], {{{held}}};"
    constraints = ",".join(["r", *("r" for _ in words), "~{memory}"])
    place = em.function.result(f"ptrtoint {row} to i32", s32)
    operands = ", ".join(map(str, (place, *words)))
    call = f'asm sideeffect "{text}", "{constraints}"({operands}) convergent'
    em.function.write(f"call void {call}")
    em.function.forget(s.writes[0].buffer)


def _mma(em: Emitter, s: Intrinsic, shape: str, operands: str, matrix: Matrix) -> None:
    """``mma.m16n8k16.bf16.f32``: C += A B for the tiles that the 32 threads hold together."""
    sums, (a, b, c) = matrix.sums, matrix.words
    words = [*_words(em, s.reads[1], a, u32), *_words(em, s.reads[2], b, u32)]
    given = [*(_operand(em, w, operands) for w in words), *_words(em, s.reads[0], c, sums)]
    type_ = f"{{ {', '.join([_element(sums)] * c)} }}"
    if is_narrow(matrix.operands):
        callee = _narrow_mma(shape, _kinds(matrix), (c, a, b))
    else:
        callee = f"@llvm.nvvm.mma.{shape}.row.col.{_kinds(matrix)}"
        em.declare(callee[1:], type_, [g.type for g in given])
    call = f"call {type_} {callee}({', '.join(map(str, given))}) convergent"
    result = em.function.result(call, sums)
    put_words(em, s.writes[0], result, type_, c)


def _narrow_mma(shape: str, kinds: str, words: tuple[int, int, int]) -> str:
    """Return a product of bytes of floats as inline assembly: LLVM 20 has no intrinsic for it."""
    c, a, b = words
    sizes, lists, first = (c, a, b, c), [], 0
    for size in sizes:
        lists.append(f"{{{', '.join(f'${first + n}' for n in range(size))}}}")
        first += size
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
