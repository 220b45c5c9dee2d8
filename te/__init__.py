"""Tensor expressions: say what each element is; loops come later."""
