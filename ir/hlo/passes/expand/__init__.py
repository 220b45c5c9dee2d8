"""Passes that expand an operation into simpler ones."""
