"""The ground floor: graph IR, loop IR, element types, targets, errors."""
