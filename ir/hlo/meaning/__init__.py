"""The meaning of HLO's operations in NumPy."""
