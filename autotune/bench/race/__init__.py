"""Races of ways to run a model, each in a process of its own, timed in turns."""
