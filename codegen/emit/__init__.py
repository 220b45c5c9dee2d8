"""Flat loops as LLVM text."""
