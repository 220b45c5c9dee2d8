"""The layout of relocatable ELF objects of 64 bits, little-endian: structures, and their numbers.

System V Application Binary Interface (gABI), chapters 4 and 5.
"""

from __future__ import annotations

from struct import Struct

MAGIC = b"\x7fELF"
CLASS = b"\2\1\1"  # 64 bits, little-endian, version 1: what follows the magic number
RELOCATABLE = 1  # the kind of the file
MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}

HEAD = Struct("<16sHHIQQQIHHHHHH")
SECTION = Struct("<IIQQQQIIQQ")
SYMBOL = Struct("<IBBHQQ")
RELOCATION = Struct("<QIIq")  # the info word is the kind, then the symbol

# Kinds of sections.
PROGBITS, SYMTAB, STRTAB, RELA, NOBITS, REL, GROUP, SYMTAB_SHNDX = 1, 2, 3, 4, 8, 9, 17, 18
CONSTRUCTORS = range(14, 17)  # arrays of functions to call before and after
ADDRSIG = 0x6FFF4C03  # LLVM's, of the symbols whose address matters
ATTRIBUTES = 0x70000003  # what processors of AArch64 and RISC-V the code is for
# Flags of sections.
WRITE, ALLOCATED, EXECUTABLE, LINKED, THREAD_LOCAL = 1, 2, 4, 0x40, 0x400
# Bindings and types of symbols, and what is in place of a section's number.
LOCAL, GLOBAL = 0, 1
OBJECT, FILE = 1, 4
UNDEFINED, RESERVED, ABSOLUTE = 0, 0xFF00, 0xFFF1
