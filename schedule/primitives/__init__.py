"""One module per family of scheduling primitives."""
