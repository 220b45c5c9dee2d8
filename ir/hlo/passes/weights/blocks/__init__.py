"""Weights with a scale for each block of their rows: recognized, and multiplied as codes."""
