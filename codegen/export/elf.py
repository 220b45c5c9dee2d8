"""Relocatable ELF objects of 64 bits, little-endian: what LLVM writes, read into values.

All is kept, unlike in ``runtime.elf``, which reads objects to run them.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import error
from typing import TypeAlias

from ...ir.errors import ArtifactError
from ..runtime.elf import layout

Data: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class ElfRelocation:
    """Where an address is put in: the offset, the symbol's number, the type and the addend."""

    offset: int
    symbol: int
    type: int
    addend: int


@dataclass(frozen=True, slots=True)
class ElfSection:
    """A section's contents and facts. ``size`` is that of its contents, or of zeros."""

    name: str
    type: int
    flags: int
    data: Data
    size: int
    alignment: int
    item: int = 0
    relocations: tuple[ElfRelocation, ...] = ()


@dataclass(frozen=True, slots=True)
class ElfSymbol:
    """A symbol; ``section`` is a number, or one of the reserved ones."""

    name: str
    binding: int
    type: int
    visibility: int
    section: int
    value: int
    size: int


@dataclass(frozen=True, slots=True)
class ElfObject:
    """An object file. ``sections`` are those that a program takes, by number."""

    machine: int
    flags: int
    sections: dict[int, ElfSection]
    symbols: tuple[ElfSymbol, ...]


def read(data: bytes, where: str) -> ElfObject:
    """Return an object file; ``ArtifactError`` if it is not one, or has what LLVM never writes."""
    try:
        return _read(data)
    except (error, ValueError, IndexError, KeyError) as e:
        raise ArtifactError("object code cannot be read", str(e), where) from None


def _read(data: bytes) -> ElfObject:
    fields = layout.HEAD.unpack_from(data)
    if fields[0][:7] != layout.MAGIC + layout.CLASS or fields[1] != layout.RELOCATABLE:
        raise ValueError("it is not a relocatable ELF object of 64 bits, little-endian")
    begin, count, names = fields[6], fields[12], fields[13]
    heads = [
        layout.SECTION.unpack_from(data, begin + n * layout.SECTION.size) for n in range(count)
    ]
    bodies = [memoryview(data)[h[4] : h[4] + (0 if h[1] == layout.NOBITS else h[5])] for h in heads]
    if strange := {h[1] for h in heads} & {layout.GROUP, layout.SYMTAB_SHNDX, *layout.CONSTRUCTORS}:
        raise ValueError(f"it has sections of types {sorted(strange)}")
    links = {h[7]: bodies[n] for n, h in enumerate(heads) if h[1] == layout.RELA}
    texts = bytes(bodies[names])
    sections = {
        n: ElfSection(
            _string(texts, h[0]), h[1], h[2], bodies[n], h[5], h[8], h[9], _relocations(links, n)
        )
        for n, h in enumerate(heads)
        if h[1] not in (0, layout.SYMTAB, layout.STRTAB, layout.RELA, layout.ADDRSIG)
    }
    table = next(n for n, h in enumerate(heads) if h[1] == layout.SYMTAB)
    strings = bytes(bodies[heads[table][6]])
    symbols = tuple(
        ElfSymbol(_string(strings, name), info >> 4, info & 15, other & 3, place, value, size)
        for name, info, other, place, value, size in layout.SYMBOL.iter_unpack(bodies[table])
    )
    return ElfObject(fields[2], fields[7], sections, symbols)


def _relocations(links: dict[int, memoryview], section: int) -> tuple[ElfRelocation, ...]:
    found = layout.RELOCATION.iter_unpack(links.get(section, memoryview(b"")))
    return tuple(ElfRelocation(at, symbol, kind, add) for at, kind, symbol, add in found)


def _string(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()


class Strings:
    """A table of strings, each once."""

    def __init__(self) -> None:
        self.data = bytearray(1)
        self._places: dict[str, int] = {"": 0}

    def place(self, text: str) -> int:
        """Return where a string is in the table; it is added if it is not there."""
        if text not in self._places:
            self._places[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self._places[text]
