"""Tuning: tasks, search, cost models, measuring, the log."""
