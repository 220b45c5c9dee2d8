"""MLIR text: tokens, types, attributes, locations, and operations before meaning."""
