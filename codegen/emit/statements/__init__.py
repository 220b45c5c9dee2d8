"""Statements and loops as LLVM text, up to whole kernels."""
