"""Sketches of reductions: along rows, down columns, to a few values, or one thread per result."""
