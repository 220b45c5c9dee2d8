"""Sketches of element-wise blocks and transpositions: one pass over memory."""
