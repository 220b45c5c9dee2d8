"""Lowering passes that every kind of target takes."""
