"""Several objects as one, in which only the names that are asked for can be seen from outside.

Sections stay as they are, side by side; names are resolved among the objects, and what is defined
here becomes local. So two such objects never clash in a program, whatever they have inside.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from ...ir.errors import ArtifactError
from ..runtime.elf import layout
from . import elf
from .elf import Data, ElfObject, ElfRelocation, ElfSection, ElfSymbol

IDENT = layout.MAGIC + layout.CLASS + bytes(9)
_ABSOLUTE = {
    62: {1, 10, 11, 12, 14},
    183: {257, 258, 259, *range(263, 270)},
    243: {1, 2, 26, 27, 28},
}
"""By machine: relocations that put absolute addresses, which code must not have: a program may be
loaded anywhere."""


@dataclass(frozen=True, slots=True)
class Linked:
    """An object file in pieces, the names it needs and the bytes of its machine code."""

    pieces: tuple[Data, ...]
    needed: frozenset[str]
    code_bytes: int

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return sum(map(len, self.pieces))


@dataclass
class _Table:
    """The symbols of the result while it is made: local ones, then those with a binding."""

    locals: list[ElfSymbol] = field(default_factory=lambda: [ElfSymbol("", 0, 0, 0, 0, 0, 0)])
    outer: list[ElfSymbol] = field(default_factory=list)


def data_object(like: ElfObject, name: str, data: Data, alignment: int) -> ElfObject:
    """Return an object, of the same machine as another, that defines a constant of some bytes."""
    section = ElfSection(
        f".rodata.{name}", layout.PROGBITS, layout.ALLOCATED, data, len(data), alignment
    )
    symbols = (
        ElfSymbol("", layout.LOCAL, 0, 0, layout.UNDEFINED, 0, 0),
        ElfSymbol(name, layout.GLOBAL, layout.OBJECT, 0, 1, 0, len(data)),
    )
    return ElfObject(like.machine, like.flags, {1: section}, symbols)


def link(objects: Sequence[ElfObject], public: Collection[str]) -> Linked:
    """Return the objects as one. ``ArtifactError`` if a name is defined twice, or if code has
    absolute addresses.
    """
    machine = objects[0].machine
    if any(o.machine != machine for o in objects):
        raise ArtifactError("objects of several machines cannot be linked")
    sections: list[ElfSection] = []
    places: list[dict[int, int]] = []
    for one in objects:
        own = {n: s for n, s in one.sections.items() if s.size or s.relocations or _used(one, n)}
        if any(s.type == layout.ATTRIBUTES for s in sections):  # one is enough: they are equal
            own = {n: s for n, s in own.items() if s.type != layout.ATTRIBUTES}
        places.append({n: len(sections) + i + 1 for i, n in enumerate(own)})
        sections += own.values()
    numbers, symbols, first_outer = _symbols(objects, places, public)
    at = 0
    for place, number in zip(places, numbers, strict=True):
        for _ in place:
            _check_code(sections[at], machine)
            moved = tuple(replace(r, symbol=number[r.symbol]) for r in sections[at].relocations)
            sections[at] = replace(sections[at], relocations=moved)
            at += 1
    needed = frozenset(
        s.name for s in symbols[first_outer:] if s.section == layout.UNDEFINED and s.name
    )
    code = sum(s.size for s in sections if s.flags & layout.EXECUTABLE)
    flags = objects[0].flags
    return Linked(_write(machine, flags, sections, symbols, first_outer), needed, code)


def _used(one: ElfObject, section: int) -> bool:
    """True if a symbol or the linker asks for a section though it is empty."""
    named = one.sections[section].name == ".note.GNU-stack"
    return named or any(s.section == section and s.name for s in one.symbols)


def _check_code(section: ElfSection, machine: int) -> None:
    types = {r.type for r in section.relocations} if section.flags & layout.EXECUTABLE else set()
    if types & _ABSOLUTE[machine]:
        raise ArtifactError(
            "this model's code works at fixed addresses only",
            "an older version of nestwright made it",
            hint="build the model again",
        )


def _symbols(
    objects: Sequence[ElfObject], places: Sequence[dict[int, int]], public: Collection[str]
) -> tuple[list[dict[int, int]], list[ElfSymbol], int]:
    """Return the number of each object's symbols in the result, its symbols, and how many of them
    are local.
    """
    table = _Table()
    local: list[dict[int, int]] = []
    defined: dict[str, tuple[bool, int]] = {}  # by name: is it local, and its place in its list
    for one, place in zip(objects, places, strict=True):
        local.append({0: 0})
        for n, symbol in enumerate(one.symbols[1:], 1):
            if symbol.section == layout.UNDEFINED:
                continue
            moved = _moved(symbol, place)
            if moved is None:
                continue
            outer = symbol.binding != layout.LOCAL and symbol.name in public
            kept = table.outer if outer else table.locals
            if symbol.binding != layout.LOCAL:
                if symbol.name in defined:
                    raise ArtifactError(f"{symbol.name} is defined twice")
                defined[symbol.name] = (not outer, len(kept))
            if not outer:
                local[-1][n] = len(kept)
            kept.append(moved if outer else replace(moved, binding=layout.LOCAL, visibility=0))
    return _resolved(objects, table, local, defined)


def _moved(symbol: ElfSymbol, place: dict[int, int]) -> ElfSymbol | None:
    """Return a symbol with its section's new number; None if nobody needs it."""
    if symbol.section >= layout.RESERVED:
        return None if symbol.type == layout.FILE else symbol
    if symbol.section not in place:
        return None
    return replace(symbol, section=place[symbol.section])


def _resolved(
    objects: Sequence[ElfObject],
    table: _Table,
    local: list[dict[int, int]],
    defined: dict[str, tuple[bool, int]],
) -> tuple[list[dict[int, int]], list[ElfSymbol], int]:
    """Find what each object takes from the others; the rest stays undefined."""
    first = len(table.locals)
    for one, numbers in zip(objects, local, strict=True):
        for n, symbol in enumerate(one.symbols[1:], 1):
            if n in numbers or symbol.binding == layout.LOCAL:
                continue
            if symbol.name not in defined:
                defined[symbol.name] = (False, len(table.outer))
                table.outer.append(replace(symbol, section=layout.UNDEFINED, value=0, visibility=0))
            is_local, at = defined[symbol.name]
            numbers[n] = at if is_local else first + at
    return local, table.locals + table.outer, first


def _write(
    machine: int,
    flags: int,
    sections: Sequence[ElfSection],
    symbols: Sequence[ElfSymbol],
    first: int,
) -> tuple[Data, ...]:
    """Return the file: header, contents, tables, and the sections' heads last."""
    names, strings = elf.Strings(), elf.Strings()
    rows = b"".join(_symbol_row(s, strings.place(s.name)) for s in symbols)
    tied = [n for n, s in enumerate(sections) if s.relocations]
    table = len(sections) + len(tied) + 1  # the symbols' section; the strings' follow
    if table + 3 >= layout.RESERVED:
        raise ArtifactError(f"{table} sections in one object", "the format has no room for them")
    out = _Out()
    for s in sections:
        out.section(names.place(s.name), s.type, s.flags, s.data, s.size, s.alignment, s.item)
    for n in tied:
        moves = b"".join(map(_relocation_row, sections[n].relocations))
        name, item = names.place(f".rela{sections[n].name}"), layout.RELOCATION.size
        out.section(name, layout.RELA, layout.LINKED, moves, len(moves), 8, item, table, n + 1)
    name = names.place(".symtab")
    out.section(name, layout.SYMTAB, 0, rows, len(rows), 8, layout.SYMBOL.size, table + 1, first)
    text = bytes(strings.data)
    out.section(names.place(".strtab"), layout.STRTAB, 0, text, len(text), 1)
    name = names.place(".shstrtab")
    text = bytes(names.data)
    out.section(name, layout.STRTAB, 0, text, len(text), 1)
    return out.file(machine, flags, table + 2)


def _symbol_row(s: ElfSymbol, name: int) -> bytes:
    info = s.binding << 4 | s.type
    return layout.SYMBOL.pack(name, info, s.visibility, s.section, s.value, s.size)


def _relocation_row(r: ElfRelocation) -> bytes:
    return layout.RELOCATION.pack(r.offset, r.type, r.symbol, r.addend)


class _Out:
    """A file while it is written: pieces in order, and the heads of sections."""

    def __init__(self) -> None:
        self.pieces: list[Data] = []
        self.at = layout.HEAD.size
        self.heads = [bytes(layout.SECTION.size)]

    def align(self, alignment: int) -> None:
        """Go on at a multiple of ``alignment``."""
        gap = -self.at % max(1, alignment)
        self.pieces.append(bytes(gap))
        self.at += gap

    def section(
        self,
        name: int,
        type_: int,
        flags: int,
        data: Data,
        size: int,
        alignment: int,
        item: int = 0,
        link: int = 0,
        info: int = 0,
    ) -> None:
        """Write a section and its head."""
        self.align(alignment)
        head = (name, type_, flags, 0, self.at, size, link, info, alignment, item)
        self.heads.append(layout.SECTION.pack(*head))
        self.pieces.append(data)
        self.at += len(data)

    def file(self, machine: int, flags: int, names: int) -> tuple[Data, ...]:
        """Return the whole file; ``names`` is the number of the section of names."""
        self.align(8)
        count = len(self.heads)
        sizes = layout.HEAD.size, 0, 0, layout.SECTION.size, count, names
        head = layout.HEAD.pack(IDENT, layout.RELOCATABLE, machine, 1, 0, 0, self.at, flags, *sizes)
        return (head, *self.pieces, *self.heads)
