"""Passes that simplify a graph without changing its meaning."""
