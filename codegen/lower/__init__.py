"""Lowering passes: scheduled loop function to flat loop function."""
