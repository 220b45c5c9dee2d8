"""Bounded dimensions padded to their bounds."""
