"""Sketches of matrix products and convolutions, on every kind of core."""
