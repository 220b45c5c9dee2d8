"""Sketches for CPUs."""
