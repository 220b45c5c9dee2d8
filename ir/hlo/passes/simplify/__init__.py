"""Passes that make a graph smaller and mean the same."""
