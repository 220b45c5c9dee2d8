"""Traces, under a module name of their own; ``schedule.py`` defines them beside ``Schedule``."""

from .schedule import Trace

__all__ = ["Trace"]
