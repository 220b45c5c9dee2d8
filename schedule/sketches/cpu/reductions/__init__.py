"""Sketches of reductions on CPUs, along rows and across them."""
