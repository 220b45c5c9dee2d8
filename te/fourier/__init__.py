"""Fourier transforms of many rows at once: the lanes of a vector are rows."""
