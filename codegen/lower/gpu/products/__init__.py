"""Asynchronous matrix products of GPUs: operands, groups, where their sums are."""
