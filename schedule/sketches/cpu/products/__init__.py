"""Sketches of matrix products on CPUs, and their costs."""
