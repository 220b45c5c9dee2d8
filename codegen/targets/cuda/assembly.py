"""Inline assembly for what LLVM has no intrinsic of, and operands: addresses, registers, words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ....ir.dtypes import DType, f32, index, s32
from ....ir.errors import VerifyError
from ....ir.loop.build import add, as_int
from ....ir.loop.nodes import Load, Region
from ...emit.expr import Emitter
from ...emit.llvm.core import IRValue

_LETTERS: Mapping[str, str] = MappingProxyType({"i32": "r", "i64": "l", "ptr": "l", "float": "f"})
"""What a constraint calls a register, by the type of its value."""
MEMORY = "~{memory}"


def assembly(em: Emitter, code: str, *operands: IRValue | str) -> None:
    """Emit PTX without a result; ``code`` calls the operands, which have types, ``$0`` and so on.

    All threads of a warp execute it together, and it may access any memory.
    """
    constraints = ",".join([*map(_letter, operands), MEMORY])
    given = ", ".join(map(str, operands))
    em.function.write(f'call void asm sideeffect "{code}", "{constraints}"({given}) convergent')


def assembly_result(
    em: Emitter,
    code: str,
    dtype: DType,
    count: int,
    *operands: IRValue | str,
    tied: int = 0,
    convergent: bool = True,
) -> IRValue:
    """Emit PTX that gives ``count`` words of f32 or 32-bit integers, ``$0`` and so on; operands
    follow.

    The first ``tied`` operands are in the registers of the first results. Several results are a
    struct: see ``store_words``. It may access any memory.
    """
    type_ = word_type(dtype)
    ties = map(str, range(tied))
    given = map(_letter, operands[tied:])
    constraints = ",".join([*[f"={_LETTERS[type_]}"] * count, *ties, *given, MEMORY])
    call = f'asm sideeffect "{code}", "{constraints}"({", ".join(map(str, operands))})'
    text = f"call {struct_of(type_, count)} {call}{' convergent' * convergent}"
    return em.function.result(text, dtype)


def _letter(operand: IRValue | str) -> str:
    return _LETTERS[str(operand).split()[0]]


def names(first: int, count: int) -> str:
    """Return so many operands of an instruction as a vector."""
    return f"{{{', '.join(f'${n}' for n in range(first, first + count))}}}"


def word_type(dtype: DType) -> str:
    """Return the LLVM type of a 32-bit word that holds one element or several narrower ones."""
    return "float" if dtype == f32 else "i32"


def struct_of(type_: str, count: int) -> str:
    """Return the LLVM type of ``count`` results: one is no struct."""
    return type_ if count == 1 else f"{{ {', '.join([type_] * count)} }}"


def store_words(em: Emitter, r: Region, result: IRValue, count: int) -> None:
    """Store the words of a result in a box of registers, the first of its words."""
    type_ = word_type(result.dtype)
    start = start_of(em, r)
    for k in range(count):
        word = result
        if count > 1:
            text = f"extractvalue {struct_of(type_, count)} {result.text}, {k}"
            word = em.function.result(text, result.dtype)
        at = em.offset(start, em.const(k, index), type_)
        em.function.write(f"store {type_} {word.text}, ptr {at.text}, align 4")
    em.function.forget(r.buffer)


def words_of(em: Emitter, r: Region, dtype: DType | None = None) -> list[IRValue]:
    """Return the 32-bit words of a box of a thread's registers, as ``dtype`` of as many bits.

    Without it they are f32 in a buffer of f32, else s32.
    """
    (only,) = r.ranges
    count = as_int(only.extent)
    assert count is not None
    kind = dtype or (f32 if r.buffer.dtype == f32 else s32)
    start, type_, found = start_of(em, r), word_type(kind), []
    for k in range(count * r.buffer.dtype.bytes // 4):
        at = em.offset(start, em.const(k, index), type_)
        text = f"load {type_}, ptr {at.text}, align 4"
        found.append(em.read(text, kind, 0, r.buffer, at, at.depth))
    return found


def register(em: Emitter, r: Region, at: int = 0) -> IRValue:
    """Return an element of a box of registers."""
    return em.value(Load(r.buffer, (add(r.ranges[0].start, at),)))


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


def shared_address(em: Emitter, r: Region) -> IRValue:
    """Return the address of a box in shared memory in 32 bits, as instructions take it."""
    pointer = start_of(em, r)
    place = in_space(em, pointer, 3)
    return em.pure(f"ptrtoint {place} to i32", s32, 0, pointer.depth)
