"""JAX's own harnesses of its primitives through ``nw.jit``."""
