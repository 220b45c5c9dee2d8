"""Objects linked to one image that runs wherever it is put.

An image has two parts: code and what it only reads, then what it writes. The second begins with a
table of addresses, a slot for each function that others define and for each symbol whose address
the code takes from there. All else refers to places of the image by their distance. So putting an
image into memory is a copy, and an address in each slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .read import ObjectFile, ObjectRelocation, ObjectSection, ObjectSymbol, read, refuse
from .relocations import KINDS, STUB_BYTES, RelocationKind

PAGE = 16384  # of any system that we run on, or a multiple
MOST_BYTES = 1 << 28
SLOT = 8


class Image(NamedTuple):
    """Linked code. ``symbols`` are offsets of what it defines.

    Bytes from ``writable`` on, a multiple of ``PAGE``, are written by the code, and there are
    ``size`` in all, those after ``data`` zero. ``imports`` are the offsets of the slots that take
    addresses of others, by name; ``relative`` the offsets of words that hold an offset in the
    image, to which its address is added.
    """

    machine: str
    data: bytes
    writable: int
    size: int
    symbols: dict[str, int]
    imports: dict[str, int]
    relative: tuple[int, ...]


class _Layout:
    """Places of the sections, by object and number, and what else is in the image."""

    def __init__(self, machine: str, objects: Sequence[ObjectFile]) -> None:
        self.machine = machine
        self.objects = objects
        self.places: dict[tuple[int, int], int] = {}
        self.symbols: dict[str, int] = {}
        self.called: dict[str, int] = {}  # number of a stub
        self.slots: dict[tuple[int, int] | str, int] = {}  # number of a slot
        self.stubs = 0  # offset
        self.table = 0  # offset
        self.relative: list[int] = []

    def place(self, at: int, writable: bool) -> int:
        """Place the sections of one part from an offset on; return the offset after them.

        What is only zeros comes last.
        """
        rows = [
            (not section.data, n, number, section)
            for n, each in enumerate(self.objects)
            for number, section in each.sections.items()
            if section.writable == writable
        ]
        for _, n, number, section in sorted(rows, key=lambda row: row[0]):
            at = _aligned(at, section.alignment)
            self.places[n, number] = at
            at += section.size
        if at > MOST_BYTES:
            refuse(f"{at} bytes of code")
        return at

    def define(self) -> None:
        """Find the places of the symbols that have a name for others."""
        for n, each in enumerate(self.objects):
            for symbol in each.symbols:
                if symbol.section is None or symbol.local:
                    continue
                if symbol.name in self.symbols:
                    refuse(f"{symbol.name} is defined twice")
                self.symbols[symbol.name] = self.places[n, symbol.section] + symbol.value

    def need(self) -> None:
        """Count the stubs and slots that the relocations take."""
        kinds, _ = KINDS[self.machine]
        for n, each in enumerate(self.objects):
            for r in each.relocations:
                kind = kinds.get(r.kind)
                if kind is None:
                    refuse(f"a relocation of kind {r.kind}")
                symbol = each.symbols[r.symbol]
                imported = self.is_import(symbol)
                if kind.needs == "slot" or imported:
                    self.slots.setdefault(self.slot_key(n, r, symbol), len(self.slots))
                if kind.needs == "call" and imported:
                    self.called.setdefault(symbol.name, len(self.called))

    def is_import(self, symbol: ObjectSymbol) -> bool:
        if symbol.section is not None:
            return False
        if symbol.local or not symbol.name:
            refuse("a relocation to no place")
        return symbol.name not in self.symbols

    def slot_key(self, n: int, r: ObjectRelocation, symbol: ObjectSymbol) -> tuple[int, int] | str:
        return symbol.name if not symbol.local else (n, r.symbol)

    def address(self, n: int, symbol: ObjectSymbol) -> int:
        """Return the offset of a symbol that is in the image."""
        if symbol.section is not None:
            return self.places[n, symbol.section] + symbol.value
        return self.symbols[symbol.name]

    def target(self, n: int, r: ObjectRelocation, kind: RelocationKind) -> int:
        """Return the offset that a relocation refers to."""
        symbol = self.objects[n].symbols[r.symbol]
        if kind.needs == "slot":
            return self.table + SLOT * self.slots[self.slot_key(n, r, symbol)] + r.addend
        if not self.is_import(symbol):
            return self.address(n, symbol) + r.addend
        if kind.needs != "call":
            refuse(f"it needs the place of {symbol.name}, which is not in it")
        return self.stubs + STUB_BYTES * self.called[symbol.name] + r.addend


def link(objects: Sequence[bytes]) -> Image:
    """Link objects with each other; ``VerifyError`` for what cannot be linked."""
    read_objects = [read(data) for data in objects]
    machines = {each.machine for each in read_objects}
    if len(machines) != 1:
        refuse(f"objects for {', '.join(sorted(machines)) or 'no machine'}")
    layout = _Layout(machines.pop(), read_objects)
    code_end = layout.place(0, writable=False)
    # Stubs follow the code, slots begin what is written: their number is known from the symbols.
    layout.symbols = dict.fromkeys(_defined(read_objects), 0)
    layout.need()
    layout.symbols.clear()
    layout.stubs = _aligned(code_end, STUB_BYTES)
    writable = _aligned(layout.stubs + STUB_BYTES * len(layout.called), PAGE)
    layout.table = writable
    size = layout.place(writable + SLOT * len(layout.slots), writable=True)
    layout.define()
    data = _filled(layout, writable)
    _relocate(layout, data)
    imports = _slots(layout, data)
    return Image(
        layout.machine,
        bytes(data),
        writable,
        max(size, len(data)),
        layout.symbols,
        imports,
        tuple(layout.relative),
    )


def _defined(objects: Sequence[ObjectFile]) -> list[str]:
    return [
        s.name for each in objects for s in each.symbols if s.section is not None and not s.local
    ]


def _filled(layout: _Layout, writable: int) -> bytearray:
    """Return the image's bytes, up to the last that is not zero by itself."""
    pieces: list[tuple[int, ObjectSection]] = [
        (at, layout.objects[n].sections[number]) for (n, number), at in layout.places.items()
    ]
    end = writable + SLOT * len(layout.slots)
    data = bytearray(max([end, *(at + len(s.data) for at, s in pieces)]))
    for at, section in pieces:
        data[at : at + len(section.data)] = section.data
    return data


def _relocate(layout: _Layout, data: bytearray) -> None:
    kinds, _ = KINDS[layout.machine]
    for n, each in enumerate(layout.objects):
        for r in each.relocations:
            kind = kinds[r.kind]
            if r.offset + kind.size > len(each.sections[r.section].data):
                refuse("a relocation is outside of its section")
            place = layout.places[n, r.section] + r.offset
            kind.write(data, place, layout.target(n, r, kind))
            if kind.needs == "absolute":
                layout.relative.append(place)


def _slots(layout: _Layout, data: bytearray) -> dict[str, int]:
    """Write the slots and stubs; return the slots of what others define."""
    _, stub = KINDS[layout.machine]
    imports = {}
    for key, number in layout.slots.items():
        at = layout.table + SLOT * number
        if isinstance(key, str) and key not in layout.symbols:
            imports[key] = at
            continue
        if isinstance(key, str):
            to = layout.symbols[key]
        else:
            n, symbol = key
            to = layout.address(n, layout.objects[n].symbols[symbol])
        data[at : at + SLOT] = to.to_bytes(SLOT, "little")
        layout.relative.append(at)
    for name, number in layout.called.items():
        stub(data, layout.stubs + STUB_BYTES * number, imports[name])
    return imports


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment
