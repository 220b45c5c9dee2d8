"""Schedules with named holes: the rules behind the default schedule and the tuner's space."""
