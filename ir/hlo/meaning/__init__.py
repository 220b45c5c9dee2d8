"""Reference semantics of HLO's operations in NumPy."""
