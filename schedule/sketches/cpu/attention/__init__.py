"""Attention on CPUs: rows of scores at a time, or one pass for few queries."""
