"""Accuracy of element-wise functions: their errors, the exact values, the cost in time."""
