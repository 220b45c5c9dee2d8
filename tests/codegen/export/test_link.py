"""Objects become one: names resolved, nothing else to be seen, and what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from struct import unpack_from

import pytest

from nestwright.codegen.export import elf
from nestwright.codegen.export.archive import archive
from nestwright.codegen.export.link import Linked, data_object, link
from nestwright.codegen.runtime.elf import layout
from nestwright.codegen.targets.cpu import toolchain as cpu
from nestwright.ir.errors import ArtifactError, LimitError
from nestwright.ir.target import Target

from .conftest import need, run

HOSTS = ("x86_64-linux-gnu", "aarch64-linux-gnu")
FIRST = """
@state = internal global i32 7
@table = external hidden constant [4 x i8]
declare i32 @second(i32)
declare double @sin(double)
define internal i32 @own(i32 %x) {
  %old = load i32, ptr @state
  store i32 %x, ptr @state
  ret i32 %old
}
define i32 @first(i32 %x) {
  %byte = load i8, ptr @table
  %wide = zext i8 %byte to i32
  %a = call i32 @own(i32 %x)
  %b = call i32 @second(i32 %a)
  %c = add i32 %b, %wide
  ret i32 %c
}
define double @wave(double %x) {
  %y = call double @sin(double %x)
  ret double %y
}
"""
SECOND = """
define internal i32 @own(i32 %x) {
  %y = mul i32 %x, 3
  ret i32 %y
}
define i32 @second(i32 %x) {
  %y = call i32 @own(i32 %x)
  ret i32 %y
}
"""


def compiled(text: str, triple: str = HOSTS[0]) -> elf.ElfObject:
    return elf.read(cpu.compile(text, Target.parse(f"llvm -mtriple={triple}")), "test")


def linked(triple: str = HOSTS[0]) -> Linked:
    first, second = compiled(FIRST, triple), compiled(SECOND, triple)
    return link([first, second, data_object(first, "table", b"\x05abc", 64)], {"first", "wave"})


def symbols(one: Linked) -> dict[str, list[elf.ElfSymbol]]:
    found = elf.read(b"".join(one.pieces), "linked").symbols
    return {s.name: [t for t in found if t.name == s.name] for s in found if s.name}


@pytest.mark.parametrize("triple", HOSTS)
def test_only_what_is_asked_for_can_be_seen(triple: str) -> None:
    one = linked(triple)
    found = symbols(one)
    outer = {n: s for n, some in found.items() for s in some if s.binding != layout.LOCAL}
    assert {n for n, s in outer.items() if s.section != layout.UNDEFINED} == {"first", "wave"}
    assert one.needed == {"sin"} == {n for n, s in outer.items() if s.section == layout.UNDEFINED}
    assert len(found["own"]) == 2 and len(found["second"]) == len(found["table"]) == 1
    sections = elf.read(b"".join(one.pieces), "linked").sections
    assert (
        one.code_bytes == sum(s.size for s in sections.values() if s.flags & layout.EXECUTABLE) > 0
    )
    assert one.size == len(b"".join(one.pieces))


def test_the_result_runs(tmp_path: Path) -> None:
    need("gcc", "nm")
    (tmp_path / "one.o").write_bytes(b"".join(linked(_triple()).pieces))
    source = tmp_path / "main.c"
    source.write_text(
        "int first(int); int main(void) { return first(2) == 26 && first(0) == 11 ? 0 : 1; }"
    )
    run("gcc", source, tmp_path / "one.o", "-lm", "-o", tmp_path / "program")
    run(tmp_path / "program")
    shown = run("nm", "-g", tmp_path / "one.o").split()
    assert [s for s in shown if s in ("first", "wave", "sin", "own", "second")] == [
        *("first", "sin", "wave")
    ]


def _triple() -> str:
    return f"{Target.parse('cpu').machine}-linux-gnu"


def test_two_definitions_of_a_name() -> None:
    with pytest.raises(ArtifactError, match="second is defined twice"):
        link([compiled(SECOND), compiled(SECOND)], {"second"})


def test_objects_of_two_machines() -> None:
    with pytest.raises(ArtifactError, match="several machines"):
        link([compiled(FIRST, HOSTS[0]), compiled(SECOND, HOSTS[1])], {"first"})


def test_code_at_fixed_addresses_is_refused() -> None:
    one = compiled(FIRST)
    number, section = next((n, s) for n, s in one.sections.items() if s.relocations)
    absolute = elf.ElfRelocation(section.relocations[0].offset, section.relocations[0].symbol, 1, 0)
    fixed = elf.ElfSection(
        section.name, section.type, section.flags, section.data, section.size, 16, 0, (absolute,)
    )
    old = elf.ElfObject(one.machine, one.flags, {**one.sections, number: fixed}, one.symbols)
    with pytest.raises(ArtifactError, match="fixed addresses") as caught:
        link([old], {"first"})
    assert "build the model again" in caught.value.hint


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" + bytes(200), b"\x7fELF\x02\x01\x01"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="object code cannot be read"):
        elf.read(data, "test")


def test_a_damaged_object_is_refused() -> None:
    data = cpu.compile(SECOND, Target.parse("llvm -mtriple=x86_64-linux-gnu"))
    for size in range(0, len(data), 97):
        with pytest.raises(ArtifactError):
            elf.read(data[:size], "test")


@pytest.mark.parametrize("size", [0, 1, 2, 61])
def test_the_index_of_an_archive(size: int, tmp_path: Path) -> None:
    data = b"".join(archive("a_rather_long_name.o", [b"x" * size], ["one", "two"]))
    assert data[:8] == b"!<arch>\n" and data[8:10] == b"/ " and len(data) % 2 == 0
    assert unpack_from(">3I", data, 68)[0] == 2
    (begin,) = {*unpack_from(">2I", data, 72)}
    assert data[begin : begin + 16] == b"a_rather_long_n/"
    assert data[begin + 60 : begin + 60 + size] == b"x" * size
    assert b"one\0two\0" in data[:begin]
    need("ar")
    (tmp_path / "lib.a").write_bytes(data)
    subprocess.run(["ar", "x", "lib.a"], cwd=tmp_path, check=True)
    assert (tmp_path / "a_rather_long_n").read_bytes() == b"x" * size


def test_an_archive_has_a_largest_size() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 32

    with pytest.raises(LimitError, match="less than 4 GiB"):
        archive("m.o", [Huge()], ["one"])
