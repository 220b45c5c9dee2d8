"""Patterns that graph passes match, and instructions that they build."""
