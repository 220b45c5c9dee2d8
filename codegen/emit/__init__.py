"""Flat loops as LLVM text; in this folder: expressions, and accesses to memory."""
