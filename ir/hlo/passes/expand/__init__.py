"""Passes that write an operation out in simpler ones."""
