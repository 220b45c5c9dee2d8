"""A linker of our own for the relocatable ELF objects that LLVM makes of our code."""
