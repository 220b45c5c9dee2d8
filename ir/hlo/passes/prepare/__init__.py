"""Passes that make layouts, calls, effects and narrow types explicit."""
