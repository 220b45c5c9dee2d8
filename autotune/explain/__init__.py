"""Answers to "why": graphs of a model's groups, and the reasons behind fusion and schedules."""
