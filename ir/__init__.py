"""The lowest layer: graph IR, loop IR, element types, targets, errors."""
