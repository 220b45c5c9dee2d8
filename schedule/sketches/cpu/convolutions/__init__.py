"""Sketches of convolutions on CPUs that are more than products."""
