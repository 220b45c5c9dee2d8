"""Vector math: elementary functions as LLVM text."""
