"""Rewrites of products."""
