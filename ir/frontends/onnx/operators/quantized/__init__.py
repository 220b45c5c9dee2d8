"""Operators on quantized arrays."""
