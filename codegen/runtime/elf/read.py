"""Relocatable ELF objects, read without trust: every offset and size is checked against the bytes.

Only what our own code generator emits is known: 64-bit little-endian objects of x86-64 and AArch64
with code, data and relocations that carry their addends (System V ABI, and its supplements for the
two processors). Thread-local data, constructors and common symbols are refused.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from ....ir.errors import VerifyError
from . import layout

MOST_BYTES = 1 << 28  # of one section in memory
MOST_ALIGNMENT = 4096

LOADED = ("x86_64", "aarch64")
_UNWINDING = b".eh_frame"  # what exceptions need, which our code has none of


class ObjectSection(NamedTuple):
    """The memory of a section: ``size`` bytes, those of ``data`` and then zeros."""

    data: bytes
    size: int
    alignment: int
    writable: bool


class ObjectSymbol(NamedTuple):
    """A name and a place: an offset in section ``section``; None for what others define."""

    name: str
    section: int | None
    value: int
    local: bool


class ObjectRelocation(NamedTuple):
    """A place in section ``section`` that depends on where symbol ``symbol`` will be."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class ObjectFile(NamedTuple):
    """An object: sections by number, symbols, and relocations of those sections."""

    machine: str
    sections: dict[int, ObjectSection]
    symbols: list[ObjectSymbol]
    relocations: list[ObjectRelocation]


def is_elf(data: bytes) -> bool:
    """True if the bytes claim to be an ELF file."""
    return data.startswith(layout.MAGIC)


def refuse(why: str) -> NoReturn:
    """Raise ``VerifyError``: this object code cannot be loaded."""
    raise VerifyError("object code cannot be loaded", why)


def read(data: bytes) -> ObjectFile:
    """Return the object in some bytes; ``VerifyError`` for what is damaged or not known here."""
    if len(data) < layout.HEAD.size or not is_elf(data):
        refuse("it is not an ELF object")
    ident, kind, number, _, _, _, at, _, _, _, _, size, count, names = layout.HEAD.unpack_from(data)
    machine = layout.MACHINES.get(number)
    known = ident[4:7] == layout.CLASS and kind == layout.RELOCATABLE
    if not known or machine not in LOADED:
        refuse(f"a file of kind {kind} for machine {number}")
    if size != layout.SECTION.size or names >= count:
        refuse("its table of sections is not well formed")
    heads = list(layout.SECTION.iter_unpack(_part(data, at, size * count)))
    names_at, names_size = heads[names][4:6]
    labels = _part(data, names_at, names_size)
    sections: dict[int, ObjectSection] = {}
    for n, head in enumerate(heads):
        if (found := _section(data, head, _text(labels, head[0]))) is not None:
            sections[n] = found
    if sum(len(section.data) for section in sections.values()) > len(data):
        refuse("its sections overlap")
    symbols = _symbols(data, heads, sections)
    return ObjectFile(machine, sections, symbols, _relocations(data, heads, sections, symbols))


def _part(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        refuse("it ends early")
    return data[at : at + size]


def _text(labels: bytes, at: int) -> bytes:
    end = labels.find(b"\0", at)
    if end < 0 or end - at > 512:
        refuse("a name is not well formed")
    return labels[at:end]


def _section(data: bytes, head: tuple[int, ...], name: bytes) -> ObjectSection | None:
    """Return the section of a header; None for one that is not loaded."""
    _, kind, flags, _, at, size, _, _, alignment, _ = head
    if kind in layout.CONSTRUCTORS or kind == layout.REL:
        refuse(f"it has a section of kind {kind}")
    if not flags & layout.ALLOCATED or name == _UNWINDING:
        return None
    alignment = max(alignment, 1)
    if flags & layout.THREAD_LOCAL or alignment > MOST_ALIGNMENT or alignment & (alignment - 1):
        refuse("it has thread-local data, or an alignment that is not known")
    if size > MOST_BYTES:
        refuse(f"a section of {size} bytes")
    if kind == layout.NOBITS and flags & layout.WRITE:
        return ObjectSection(b"", size, alignment, True)
    if kind != layout.PROGBITS:
        refuse(f"it has a section of kind {kind}")
    return ObjectSection(_part(data, at, size), size, alignment, bool(flags & layout.WRITE))


def _symbols(
    data: bytes, heads: list[tuple[int, ...]], sections: dict[int, ObjectSection]
) -> list[ObjectSymbol]:
    tables = [head for head in heads if head[1] == layout.SYMTAB]
    if len(tables) != 1:
        refuse(f"it has {len(tables)} tables of symbols")
    _, _, _, _, at, size, link, _, _, width = tables[0]
    if width != layout.SYMBOL.size or size % width or link >= len(heads):
        refuse("its table of symbols is not well formed")
    labels = _part(data, *heads[link][4:6])
    found = []
    for name, info, _, section, value, _ in layout.SYMBOL.iter_unpack(_part(data, at, size)):
        home = section if section in sections else None
        if home is None and (section >= layout.RESERVED and section != layout.ABSOLUTE):
            refuse(f"a symbol of section {section}")
        if home is not None and value > sections[home].size:
            refuse("a symbol is outside of its section")
        text = _text(labels, name).decode("ascii", "replace") if name else ""
        local = info >> 4 == 0 or (home is None and section != layout.UNDEFINED)
        found.append(ObjectSymbol(text, home, value, local))
    return found


def _relocations(
    data: bytes,
    heads: list[tuple[int, ...]],
    sections: dict[int, ObjectSection],
    symbols: list[ObjectSymbol],
) -> list[ObjectRelocation]:
    found = []
    for _, kind, _, _, at, size, _, target, _, width in heads:
        if kind != layout.RELA or target not in sections:
            continue
        if width != layout.RELOCATION.size or size % width:
            refuse("its relocations are not well formed")
        end = len(sections[target].data)
        for offset, what, symbol, addend in layout.RELOCATION.iter_unpack(_part(data, at, size)):
            if offset >= end or symbol >= len(symbols):
                refuse("a relocation is outside of its section")
            found.append(ObjectRelocation(target, offset, what, symbol, addend))
    return found
