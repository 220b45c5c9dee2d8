"""Traces: what was done to a function, as data. They are defined beside what they replay into."""

from .schedule import Trace

__all__ = ["Trace"]
