"""Processors: object code, the native program and its runtime."""
