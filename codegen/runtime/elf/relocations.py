"""Relocations of x86-64 and AArch64, by number: what each writes, and where.

The numbers and formulas are those of the processors' supplements to the System V ABI. S is the
address of the symbol, A the addend, P the place, G the address of the symbol's slot in the table of
addresses. All of an image is within 2 GiB, so a displacement fits; on AArch64 a call reaches
128 MiB.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from .read import refuse

Needs: TypeAlias = Literal["symbol", "call", "slot", "absolute"]
"""The address that a relocation takes: the symbol's; for a call, of a stub where others define the
symbol; that of its slot; or the absolute address, which is known when the code is loaded."""
Write: TypeAlias = Callable[[bytearray, int, int], None]
"""Writes S + A to a place in the image; both are offsets in the image."""

_PAGE = ~0xFFF


class RelocationKind(NamedTuple):
    """One kind of relocation: the address it takes, the bytes it changes, and how."""

    needs: Needs
    size: int
    write: Write


def _signed(value: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        refuse(f"an address is out of reach by {value} bytes")
    return value


def _relative(form: str, bits: int) -> Write:
    pack = struct.Struct(form).pack_into

    def write(image: bytearray, place: int, to: int) -> None:
        pack(image, place, _signed(to - place, bits))

    return write


def _absolute(image: bytearray, place: int, to: int) -> None:
    """The loader adds the address of the image."""
    struct.pack_into("<q", image, place, to)


def _word(image: bytearray, place: int, clear: int, bits: int) -> None:
    """Replace bits of an instruction."""
    (old,) = struct.unpack_from("<I", image, place)
    struct.pack_into("<I", image, place, old & ~clear & 0xFFFFFFFF | bits)


def _branch(bits: int, shift: int) -> Write:
    mask = ((1 << bits) - 1) << shift

    def write(image: bytearray, place: int, to: int) -> None:
        if to % 4:
            refuse("a branch to the middle of an instruction")
        distance = _signed(to - place, bits + 2) >> 2
        _word(image, place, mask, distance << shift & mask)

    return write


def _page(image: bytearray, place: int, to: int) -> None:
    pages = _signed((to & _PAGE) - (place & _PAGE), 33) >> 12
    bits = (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    _word(image, place, 3 << 29 | 0x7FFFF << 5, bits)


def _low(scale: int) -> Write:
    """An offset in a page, in units of the access's size."""

    def write(image: bytearray, place: int, to: int) -> None:
        low = to & 0xFFF
        if low % (1 << scale):
            refuse("an access that is not aligned")
        _word(image, place, 0xFFF << 10, low >> scale << 10)

    return write


_PC32 = _relative("<i", 32)
_PC64 = _relative("<q", 64)
X86_64: Mapping[int, RelocationKind] = {
    1: RelocationKind("absolute", 8, _absolute),  # R_X86_64_64
    2: RelocationKind("call", 4, _PC32),  # PC32
    4: RelocationKind("call", 4, _PC32),  # PLT32
    9: RelocationKind("slot", 4, _PC32),  # GOTPCREL
    24: RelocationKind("symbol", 8, _PC64),  # PC64
    41: RelocationKind("slot", 4, _PC32),  # GOTPCRELX
    42: RelocationKind("slot", 4, _PC32),  # REX_GOTPCRELX
}
AARCH64: Mapping[int, RelocationKind] = {
    257: RelocationKind("absolute", 8, _absolute),  # R_AARCH64_ABS64
    260: RelocationKind("symbol", 8, _PC64),  # PREL64
    261: RelocationKind("symbol", 4, _PC32),  # PREL32
    275: RelocationKind("symbol", 4, _page),  # ADR_PREL_PG_HI21
    276: RelocationKind("symbol", 4, _page),  # ADR_PREL_PG_HI21_NC
    277: RelocationKind("symbol", 4, _low(0)),  # ADD_ABS_LO12_NC
    278: RelocationKind("symbol", 4, _low(0)),  # LDST8_ABS_LO12_NC
    279: RelocationKind("symbol", 4, _branch(14, 5)),  # TSTBR14
    280: RelocationKind("symbol", 4, _branch(19, 5)),  # CONDBR19
    282: RelocationKind("call", 4, _branch(26, 0)),  # JUMP26
    283: RelocationKind("call", 4, _branch(26, 0)),  # CALL26
    284: RelocationKind("symbol", 4, _low(1)),  # LDST16_ABS_LO12_NC
    285: RelocationKind("symbol", 4, _low(2)),  # LDST32_ABS_LO12_NC
    286: RelocationKind("symbol", 4, _low(3)),  # LDST64_ABS_LO12_NC
    299: RelocationKind("symbol", 4, _low(4)),  # LDST128_ABS_LO12_NC
    311: RelocationKind("slot", 4, _page),  # ADR_GOT_PAGE
    312: RelocationKind("slot", 4, _low(3)),  # LD64_GOT_LO12_NC
}


def _x86_stub(image: bytearray, place: int, slot: int) -> None:
    image[place : place + 2] = b"\xff\x25"  # jmp *slot(%rip)
    _PC32(image, place + 2, slot - 4)


def _arm_stub(image: bytearray, place: int, slot: int) -> None:
    # adrp x16, slot; ldr x16, [x16, slot]; br x16
    struct.pack_into("<III", image, place, 0x90000010, 0xF9400210, 0xD61F0200)
    _page(image, place, slot)
    _low(3)(image, place + 4, slot)


STUB_BYTES = 16
KINDS: Mapping[str, tuple[Mapping[int, RelocationKind], Write]] = {
    "x86_64": (X86_64, _x86_stub),
    "aarch64": (AARCH64, _arm_stub),
}
"""By processor: the relocations, and what writes a jump through a slot."""
