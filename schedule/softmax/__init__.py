"""Softmax and masks in loop nests: their parts, what is hidden, and what a sum is made of."""
