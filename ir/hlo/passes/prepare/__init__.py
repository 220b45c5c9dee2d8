"""Passes that make layouts, calls, effects and narrow types explicit, before all others."""
